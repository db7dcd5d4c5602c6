//! Whether a GPU and its driver can run the kernels that were compiled: decided before anything is launched, so that
//! the message can say what is needed, and what is there.

/// What the kernels were compiled by and for.
pub(super) struct Build<'a> {
    /// The toolkit's version, as the driver numbers them: 13000 for 13.0, 13010 for 13.1.
    pub(super) toolkit: u32,
    /// `80,90,100`: machine code for each, and PTX of the last, which drivers compile for what comes after it.
    pub(super) architectures: &'a str,
}

/// An architecture that there is code for.
#[derive(Clone, Copy, PartialEq)]
struct Architecture {
    major: u32,
    minor: u32,
    extent: Extent,
}

/// Where an architecture's code runs.
#[derive(Clone, Copy, PartialEq)]
enum Extent {
    /// Machine code on those of the same major number and no lower minor one, PTX on all that are no lower.
    Upwards,
    /// `f`: both on those of the same major number and no lower minor one.
    Family,
    /// `a`: both on this one only.
    Only,
}

impl Architecture {
    /// `90`, `90a` or `100f`; none if it is something else, which nvcc would have refused.
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (number, extent) = match text.strip_suffix(['a', 'f']) {
            Some(number) if text.ends_with('a') => (number, Extent::Only),
            Some(number) => (number, Extent::Family),
            None => (text, Extent::Upwards),
        };
        let number: u32 = number.parse().ok()?;
        Some(Architecture { major: number / 10, minor: number % 10, extent })
    }

    fn has_machine_code_for(self, (major, minor): (u32, u32)) -> bool {
        self.major == major
            && if self.extent == Extent::Only { self.minor == minor } else { self.minor <= minor }
    }

    fn has_ptx_for(self, (major, minor): (u32, u32)) -> bool {
        match self.extent {
            Extent::Upwards => (self.major, self.minor) <= (major, minor),
            Extent::Family | Extent::Only => self.has_machine_code_for((major, minor)),
        }
    }
}

/// What keeps a GPU of the compute capability `(major, minor)` from running the kernels under a driver for CUDA
/// `driver`, numbered as [`Build::toolkit`] is; `None` if nothing does.
pub(super) fn obstacle(build: &Build<'_>, driver: u32, capability: (u32, u32)) -> Option<String> {
    let Build { toolkit, architectures } = *build;
    let version = |number: u32| format!("{}.{}", number / 1000, number % 1000 / 10);
    // Within a major version, a driver runs the machine code of later toolkits too.
    let needed = toolkit / 1000 * 1000;
    if driver < needed {
        return Some(format!(
            "the driver supports CUDA {} at most, and this program needs CUDA {}: update the NVIDIA driver",
            version(driver),
            version(needed)
        ));
    }
    let compiled: Vec<_> = architectures.split(',').filter_map(Architecture::parse).collect();
    if compiled.iter().any(|architecture| architecture.has_machine_code_for(capability)) {
        return None;
    }
    let (major, minor) = capability;
    if compiled.last().is_some_and(|last| last.has_ptx_for(capability)) {
        // But it does not compile their PTX.
        return (driver < toolkit).then(|| {
            format!(
                "the GPU has compute capability {major}.{minor}, for which a driver for CUDA {} must compile the \
                 kernels, and this one is for CUDA {}: update the NVIDIA driver, or build with \
                 COHOP_CUDA_ARCHITECTURES={major}{minor}",
                version(toolkit),
                version(driver)
            )
        });
    }
    let names: Vec<_> = architectures.split(',').map(str::trim).collect();
    Some(format!(
        "the GPU has compute capability {major}.{minor}, and the kernels are compiled for {}: build with \
         COHOP_CUDA_ARCHITECTURES={major}{minor}",
        names.iter().map(|name| format!("sm_{name}")).collect::<Vec<_>>().join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn obstacle_to(architectures: &str, driver: u32, capability: (u32, u32)) -> Option<String> {
        obstacle(&Build { toolkit: 13010, architectures }, driver, capability)
    }

    #[test]
    fn machine_code_runs_on_its_major_version_and_ptx_on_all_later_ones() {
        let runs = |architectures, capability| obstacle_to(architectures, 13010, capability).is_none();
        let default = "80,90,100";
        for capability in [(8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0), (12, 1)] {
            assert!(runs(default, capability), "{capability:?}");
        }
        assert!(!runs(default, (7, 5)) && !runs("86,90", (8, 0)));
        // PTX of the last only.
        assert!(runs("80", (9, 0)) && runs("90, 80", (10, 0)) && !runs("80,120", (9, 0)));
        // Code for one GPU, and for a family.
        assert!(runs("90a", (9, 0)) && !runs("90a", (10, 0)) && !runs("100a", (10, 3)));
        assert!(runs("100f", (10, 3)) && !runs("100f", (12, 0)) && !runs("103f", (10, 0)));
        let error = obstacle_to(default, 13010, (7, 5)).unwrap();
        let expected = "the GPU has compute capability 7.5, and the kernels are compiled for sm_80, sm_90, sm_100: \
                        build \
                        with COHOP_CUDA_ARCHITECTURES=75";
        assert_eq!(error, expected);
    }

    #[test]
    fn drivers_must_be_of_the_toolkits_major_version() {
        let with = |driver, capability| obstacle_to("80,90", driver, capability);
        assert!(
            with(13000, (9, 0)).is_none() && with(13020, (9, 0)).is_none() && with(14000, (9, 0)).is_none()
        );
        let error = with(12080, (9, 0)).unwrap();
        let expected = "the driver supports CUDA 12.8 at most, and this program needs CUDA 13.0: update the NVIDIA \
                        driver";
        assert_eq!(error, expected);
        // It compiles no PTX of a later toolkit.
        assert!(with(13010, (10, 0)).is_none());
        let error = with(13000, (10, 0)).unwrap();
        assert!(
            error.contains("a driver for CUDA 13.1") && error.contains("this one is for CUDA 13.0"),
            "{error}"
        );
        assert!(error.contains("COHOP_CUDA_ARCHITECTURES=100"), "{error}");
    }
}

//! Elementary functions from IEEE `+`, `−`, `×`, `÷` and `√` alone.
//!
//! Library forms of `ln` or `exp` differ in the last bit from one machine to the next, and a sample must not. These
//! do the same operations in the same order on every device, without fused multiply-add, so their results are equal
//! bit for bit. The stated errors are upper bounds over the stated range, checked by this module's tests.

use std::f64::consts::FRAC_PI_2;

/// The leading 33 bits of ln 2: a multiple by an exponent is exact.
const LN_2_HIGH: f64 = 6.931_471_803_691_238e-1;
/// The rest of ln 2.
const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;
const SQRT_2: f64 = std::f64::consts::SQRT_2;
const LOG2_E: f64 = std::f64::consts::LOG2_E;

#[inline(always)]
fn horner<const N: usize>(x: f64, highest_first: [f64; N]) -> f64 {
    let mut sum = highest_first[0];
    for coefficient in &highest_first[1..] {
        sum = sum * x + coefficient;
    }
    sum
}

/// Natural logarithm of a positive, finite, normal number. Relative error below 4e-16.
///
/// With `x = m·2^k`, `√½ ≤ m < √2` and `s = (m − 1)/(m + 1)`: `ln m = 2 (s + s³/3 + s⁵/5 + …)`.
#[inline]
pub fn ln(x: f64) -> f64 {
    debug_assert!(x >= f64::MIN_POSITIVE && x.is_finite());
    let bits = x.to_bits();
    let mut exponent = (bits >> 52) as i64 - 1023;
    let mut m = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    if m >= SQRT_2 {
        m *= 0.5;
        exponent += 1;
    }
    let k = exponent as f64;
    let s = (m - 1.0) / (m + 1.0);
    let s2 = s * s;
    let tail = horner(
        s2,
        [
            1.0 / 21.0,
            1.0 / 19.0,
            1.0 / 17.0,
            1.0 / 15.0,
            1.0 / 13.0,
            1.0 / 11.0,
            1.0 / 9.0,
            1.0 / 7.0,
            1.0 / 5.0,
            1.0 / 3.0,
        ],
    );
    let two_s = s + s;
    k * LN_2_HIGH + (two_s + (two_s * s2 * tail + k * LN_2_LOW))
}

/// e to a power of at most 709; 0 below −708. Relative error below 4e-16.
///
/// With `x = n ln 2 + r`, `|r| ≤ ln(2)/2`: `eˣ = 2ⁿ · eʳ`, the latter by its Taylor series.
#[inline]
pub fn exp(x: f64) -> f64 {
    debug_assert!(x <= 709.0);
    if x < -708.0 {
        return 0.0;
    }
    let n = (x * LOG2_E + if x < 0.0 { -0.5 } else { 0.5 }) as i64;
    let r = (x - n as f64 * LN_2_HIGH) - n as f64 * LN_2_LOW;
    let series = horner(
        r,
        [
            1.0 / 6_227_020_800.0,
            1.0 / 479_001_600.0,
            1.0 / 39_916_800.0,
            1.0 / 3_628_800.0,
            1.0 / 362_880.0,
            1.0 / 40_320.0,
            1.0 / 5_040.0,
            1.0 / 720.0,
            1.0 / 120.0,
            1.0 / 24.0,
            1.0 / 6.0,
            0.5,
        ],
    );
    // 1 + (r + r²·…): the two small terms are added first.
    let power = 1.0 + (r + r * r * series);
    power * f64::from_bits(((n + 1023) as u64) << 52)
}

/// Φ, the standard normal distribution function. Absolute error below 4e-16; relative error below 1e-7 in the lower
/// tail.
///
/// The rational form of Hart (1968), as given by West (2005), "Better approximations to cumulative normal functions".
#[inline]
pub fn normal_cdf(x: f64) -> f64 {
    let a = if x < 0.0 { -x } else { x };
    let tail = if a > 37.0 {
        0.0
    } else {
        let density = exp(-0.5 * a * a);
        if a < 7.071_067_811_865_47 {
            let numerator = horner(
                a,
                [
                    3.526_249_659_989_11e-2,
                    0.700_383_064_443_688,
                    6.373_962_203_531_65,
                    33.912_866_078_383,
                    112.079_291_497_871,
                    221.213_596_169_931,
                    220.206_867_912_376,
                ],
            );
            let denominator = horner(
                a,
                [
                    8.838_834_764_831_84e-2,
                    1.755_667_163_182_64,
                    16.064_177_579_207,
                    86.780_732_202_946_1,
                    296.564_248_779_674,
                    637.333_633_378_831,
                    793.826_512_519_948,
                    440.413_735_824_752,
                ],
            );
            density * numerator / denominator
        } else {
            let fraction = a + 1.0 / (a + 2.0 / (a + 3.0 / (a + 4.0 / (a + 0.65))));
            density / (fraction * 2.506_628_274_631)
        }
    };
    if x < 0.0 { tail } else { 1.0 - tail }
}

/// Φ⁻¹, the standard normal quantile, of a number in `(0, 1)`. Relative error below 2e-15; `Φ⁻¹(1 − p)` is exactly
/// `−Φ⁻¹(p)` where `1 − p` is exact.
///
/// Wichura (1988), algorithm AS 241 (PPND16).
#[inline]
pub fn normal_quantile(p: f64) -> f64 {
    debug_assert!(p > 0.0 && p < 1.0);
    let q = p - 0.5;
    if (if q < 0.0 { -q } else { q }) <= 0.425 {
        let r = 0.180625 - q * q;
        let numerator = horner(
            r,
            [
                2.509_080_928_730_122_6e3,
                3.343_057_558_358_813e4,
                6.726_577_092_700_87e4,
                4.592_195_393_154_987e4,
                1.373_169_376_550_946e4,
                1.971_590_950_306_551_3e3,
                1.331_416_678_917_843_8e2,
                3.387_132_872_796_366_5,
            ],
        );
        let denominator = horner(
            r,
            [
                5.226_495_278_852_854e3,
                2.872_908_573_572_194_3e4,
                3.930_789_580_009_271e4,
                2.121_379_430_158_66e4,
                5.394_196_021_424_751e3,
                6.871_870_074_920_579e2,
                4.231_333_070_160_091e1,
                1.0,
            ],
        );
        return q * numerator / denominator;
    }
    let r = (-ln(if q < 0.0 { p } else { 1.0 - p })).sqrt();
    let magnitude = if r <= 5.0 {
        let r = r - 1.6;
        let numerator = horner(
            r,
            [
                7.745_450_142_783_414e-4,
                2.272_384_498_926_918_4e-2,
                2.417_807_251_774_506e-1,
                1.270_458_252_452_368_4,
                3.647_848_324_763_204_5,
                5.769_497_221_460_691,
                4.630_337_846_156_546,
                1.423_437_110_749_683_5,
            ],
        );
        let denominator = horner(
            r,
            [
                1.050_750_071_644_416_9e-9,
                5.475_938_084_995_345e-4,
                1.519_866_656_361_645_7e-2,
                1.481_039_764_274_800_8e-1,
                6.897_673_349_851e-1,
                1.676_384_830_183_803_8,
                2.053_191_626_637_759,
                1.0,
            ],
        );
        numerator / denominator
    } else {
        let r = r - 5.0;
        let numerator = horner(
            r,
            [
                2.010_334_399_292_288_1e-7,
                2.711_555_568_743_487_6e-5,
                1.242_660_947_388_078_4e-3,
                2.653_218_952_657_612_4e-2,
                2.965_605_718_285_048_7e-1,
                1.784_826_539_917_291_3,
                5.463_784_911_164_114,
                6.657_904_643_501_104,
            ],
        );
        let denominator = horner(
            r,
            [
                2.044_263_103_389_939_8e-15,
                1.421_511_758_316_446e-7,
                1.846_318_317_510_054_8e-5,
                7.868_691_311_456_133e-4,
                1.487_536_129_085_061_5e-2,
                1.369_298_809_227_358e-1,
                5.998_322_065_558_88e-1,
                1.0,
            ],
        );
        numerator / denominator
    };
    if q < 0.0 { -magnitude } else { magnitude }
}

/// `(sin(cπ/2), cos(cπ/2))` for `c` in `[0, 1]`; exact at both ends. Absolute error below 3e-16.
///
/// Taylor series on `[0, π/4]`; the other half is its mirror.
pub fn sin_cos_quarter(c: f64) -> (f64, f64) {
    debug_assert!((0.0..=1.0).contains(&c));
    let mirrored = c > 0.5;
    let x = (if mirrored { 1.0 - c } else { c }) * FRAC_PI_2;
    let x2 = x * x;
    let sin = x + x
        * x2
        * horner(
            x2,
            [
                1.0 / 355_687_428_096_000.0,
                -1.0 / 1_307_674_368_000.0,
                1.0 / 6_227_020_800.0,
                -1.0 / 39_916_800.0,
                1.0 / 362_880.0,
                -1.0 / 5_040.0,
                1.0 / 120.0,
                -1.0 / 6.0,
            ],
        );
    let cos = 1.0
        + x2 * horner(
            x2,
            [
                1.0 / 20_922_789_888_000.0,
                -1.0 / 87_178_291_200.0,
                1.0 / 479_001_600.0,
                -1.0 / 3_628_800.0,
                1.0 / 40_320.0,
                -1.0 / 720.0,
                1.0 / 24.0,
                -0.5,
            ],
        );
    if mirrored { (cos, sin) } else { (sin, cos) }
}

#[cfg(test)]
#[expect(clippy::excessive_precision, reason = "reference values are written as tabulated")]
mod tests {
    use super::*;
    use crate::rng::uniform;
    use crate::testing::assert_close;

    /// `count` numbers spread over `[low, high)`.
    fn spread(low: f64, high: f64, count: u64) -> Vec<f64> {
        (0..count).map(move |i| low + (high - low) * uniform(11, 0, i)).collect()
    }

    fn map(xs: &[f64], f: impl Fn(f64) -> f64) -> Vec<f64> {
        xs.iter().map(|&x| f(x)).collect()
    }

    #[test]
    fn ln_and_exp_agree_with_the_standard_library() {
        let xs = [spread(-700.0, 700.0, 100_000), spread(-2.0, 2.0, 100_000)].concat();
        let powers = map(&xs, f64::exp);
        assert_close("exp", &map(&xs, exp), &powers, |_, expected| 4e-16 * expected);
        assert_close("ln", &map(&powers, ln), &map(&powers, f64::ln), |_, expected| 4e-16 * expected.abs());
        assert_eq!(ln(1.0), 0.0);
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-800.0), 0.0);
        assert!(ln(f64::MIN_POSITIVE) == f64::MIN_POSITIVE.ln());
    }

    #[test]
    fn sin_and_cos_agree_with_the_standard_library() {
        let xs = spread(0.0, 1.0, 100_000);
        let (sin, cos): (Vec<f64>, Vec<f64>) = xs.iter().map(|&c| sin_cos_quarter(c)).unzip();
        assert_close("sin", &sin, &map(&xs, |c| (c * FRAC_PI_2).sin()), |_, _| 3e-16);
        assert_close("cos", &cos, &map(&xs, |c| (c * FRAC_PI_2).cos()), |_, _| 3e-16);
        let squares: Vec<f64> = sin.iter().zip(&cos).map(|(sin, cos)| sin * sin + cos * cos).collect();
        assert_close("sin² + cos²", &squares, &vec![1.0; xs.len()], |_, _| 1e-15);
        assert_eq!(sin_cos_quarter(0.0), (0.0, 1.0));
        assert_eq!(sin_cos_quarter(1.0), (1.0, 0.0));
    }

    /// Values to 20 digits, by multiple-precision arithmetic.
    #[test]
    fn normal_cdf_has_the_tabulated_values() {
        let (xs, expected): (Vec<f64>, Vec<f64>) = [
            (0.0, 0.5),
            (-0.25, 0.40129367431707627576),
            (0.5, 0.69146246127401310364),
            (-1.0, 0.15865525393145705141),
            (1.5, 0.933192798731141934),
            (-2.5, 0.006209665325776135167),
            (3.75, 0.99991158271479919613),
            (-5.0, 2.8665157187919391167e-7),
            (-6.9, 2.600126965638172838e-12),
            (8.0, 0.9999999999999993779),
        ]
        .into_iter()
        .unzip();
        assert_close("Φ", &map(&xs, normal_cdf), &expected, |_, _| 4e-16);
        let (xs, expected): (Vec<f64>, Vec<f64>) = [
            (-5.0, 2.8665157187919391167e-7),
            (-6.9, 2.600126965638172838e-12),
            (-7.5, 3.1908916729108962278e-14),
            (-10.0, 7.619853024160526066e-24),
            (-20.0, 2.7536241186062336951e-89),
            (-37.0, 5.7255712225245768227e-300),
        ]
        .into_iter()
        .unzip();
        assert_close("Φ", &map(&xs, normal_cdf), &expected, |_, expected| 1e-7 * expected);
        assert_eq!(normal_cdf(f64::NEG_INFINITY), 0.0);
        assert_eq!(normal_cdf(f64::INFINITY), 1.0);
    }

    #[test]
    fn normal_quantile_has_the_tabulated_values() {
        let (ps, expected): (Vec<f64>, Vec<f64>) = [
            (1e-300, -37.047096299361199237),
            (1e-16, -8.2220822161304356152),
            (1e-10, -6.3613409024040561991),
            (1e-5, -4.2648907939228246102),
            (0.001, -3.0902323061678135354),
            (0.02425, -1.9729610513118848376),
            (0.075, -1.4395314709384559349),
            (0.25, -0.6744897501960817432),
            (0.4, -0.25334710313579974132),
            (0.7, 0.52440051270804065631),
            (0.925, 1.4395314709384562291),
            (0.99, 2.3263478740408407676),
            (0.999999, 4.7534243088170877657),
        ]
        .into_iter()
        .unzip();
        assert_close("Φ⁻¹", &map(&ps, normal_quantile), &expected, |_, expected| 2e-15 * expected.abs());
        assert_eq!(normal_quantile(0.5), 0.0);
        for p in spread(0.0, 0.5, 10_000) {
            let p = p.max(2f64.powi(-53));
            assert_eq!(normal_quantile(1.0 - (1.0 - p)), -normal_quantile(1.0 - p));
        }
    }

    /// The two are each other's inverses; `dp = φ(x) dx` turns the one's error into the other's.
    #[test]
    fn cdf_and_quantile_are_inverse() {
        let ps = spread(1e-12, 1.0 - 1e-12, 100_000);
        assert_close("Φ∘Φ⁻¹", &map(&ps, |p| normal_cdf(normal_quantile(p))), &ps, |_, _| 2e-15);
    }
}

//! `--plot FILE.svg` and `--plot FILE.png`: lines over a logarithmic or a linear axis.

use std::path::Path;
use std::sync::OnceLock;

use plotters::coord::Shift;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::register_font;

use cohop::{Error, Result};

/// A line and its name in the legend.
pub(super) struct Series {
    pub name: String,
    /// Points `(x, y)` in order of x, which is positive.
    pub points: Vec<(f64, f64)>,
}

/// How the horizontal axis runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    /// By powers of 2.
    Logarithmic,
    /// Evenly.
    Linear,
}

/// What to draw.
pub(super) struct Plot {
    pub title: String,
    pub x_label: String,
    pub y_label: String,
    pub x_scale: Scale,
    pub series: Vec<Series>,
    /// Height of a horizontal line, at which two sides are even.
    pub even: Option<f64>,
}

/// A subset of DejaVu Sans, with its licence in the same folder, so that machines without fonts can draw text.
static FONT: &[u8] = include_bytes!("font/dejavu-sans-subset.ttf");
const FAMILY: &str = "sans-serif";
const SIZE: (u32, u32) = (900, 600);

/// Okabe & Ito's colours, which the colour-blind can tell apart.
const COLORS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

impl Plot {
    /// Draws to a file, whose extension decides the format.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        static REGISTERED: OnceLock<bool> = OnceLock::new();
        if !REGISTERED.get_or_init(|| register_font(FAMILY, FontStyle::Normal, FONT).is_ok()) {
            return Err(Error::format(path, "the font of plots is damaged"));
        }
        let failed = |problem: String| Error::format(path, problem);
        match form(path)? {
            Form::Svg => {
                let mut text = String::new();
                self.draw(SVGBackend::with_string(&mut text, SIZE).into_drawing_area()).map_err(failed)?;
                std::fs::write(path, text).map_err(|e| Error::io(path, e))
            }
            Form::Png => {
                let (width, height) = SIZE;
                let mut pixels = vec![0; 3 * (width * height) as usize];
                self.draw(BitMapBackend::with_buffer(&mut pixels, SIZE).into_drawing_area())
                    .map_err(failed)?;
                let file = std::fs::File::create(path).map_err(|e| Error::io(path, e))?;
                write_png(file, &pixels).map_err(|e| Error::io(path, e))
            }
        }
    }

    /// The corner where the legend hides least: rising lines end at the upper right.
    fn emptier_corner(&self) -> SeriesLabelPosition {
        let ends = self.series.iter().filter_map(|s| Some(s.points.last()?.1 - s.points.first()?.1));
        if ends.sum::<f64>() > 0.0 { SeriesLabelPosition::UpperLeft } else { SeriesLabelPosition::UpperRight }
    }

    fn draw<B: DrawingBackend>(&self, area: DrawingArea<B, Shift>) -> Result<(), String> {
        self.try_draw(&area).map_err(|error| format!("could not be drawn: {error}"))
    }

    fn try_draw<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        area.fill(&WHITE)?;
        let finite = || {
            let points = self.series.iter().flat_map(|series| &series.points);
            points.copied().filter(|(x, y)| x.is_finite() && *x > 0.0 && y.is_finite())
        };
        let (mut first, mut last) = (f64::INFINITY, 0.0f64);
        let mut top = self.even.unwrap_or(0.0);
        for (x, y) in finite() {
            (first, last, top) = (first.min(x), last.max(x), top.max(y));
        }
        if last == 0.0 {
            (first, last) = (1.0, 2.0);
        }
        if first == last {
            (first, last) = (first / 2.0, last * 2.0);
        }
        if top <= 0.0 {
            top = 1.0;
        }
        let mut builder = ChartBuilder::on(area);
        builder.caption(&self.title, (FAMILY, 20)).margin(16).x_label_area_size(48).y_label_area_size(72);
        let (x, y) = (first..last * 1.0001, 0.0..top * 1.06);
        match self.x_scale {
            Scale::Logarithmic => {
                self.lines(builder.build_cartesian_2d(x.log_scale().base(2.0), y)?, (first, last))?;
            }
            Scale::Linear => self.lines(builder.build_cartesian_2d(x, y)?, (first, last))?,
        }
        area.present()
    }

    /// Draws axes, lines and legend.
    fn lines<'a, B: DrawingBackend + 'a, X>(
        &self,
        mut chart: ChartContext<'a, B, Cartesian2d<X, RangedCoordf64>>,
        (first, last): (f64, f64),
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>>
    where
        X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        chart
            .configure_mesh()
            .x_desc(&self.x_label)
            .y_desc(&self.y_label)
            .label_style((FAMILY, 14))
            .axis_desc_style((FAMILY, 16))
            .light_line_style(WHITE)
            .x_label_formatter(&|x| whole(*x))
            .draw()?;
        if let Some(even) = self.even {
            chart.draw_series([PathElement::new(vec![(first, even), (last, even)], BLACK.mix(0.5))])?;
        }
        for (index, series) in self.series.iter().enumerate() {
            let color = COLORS[index % COLORS.len()];
            let points: Vec<_> =
                series.points.iter().copied().filter(|(x, y)| *x > 0.0 && y.is_finite()).collect();
            chart.draw_series(points.iter().map(|&point| Circle::new(point, 3, color.filled())))?;
            chart
                .draw_series(LineSeries::new(points, color.stroke_width(2)))?
                .label(&series.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], color.stroke_width(2)));
        }
        chart
            .configure_series_labels()
            .position(self.emptier_corner())
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .label_font((FAMILY, 14))
            .draw()?;
        Ok(())
    }
}

/// Writes an image of [`SIZE`], three bytes per pixel.
fn write_png(file: std::fs::File, pixels: &[u8]) -> std::io::Result<()> {
    let mut encoder = png::Encoder::new(std::io::BufWriter::new(file), SIZE.0, SIZE.1);
    encoder.set_color(png::ColorType::Rgb);
    let mut image = encoder.write_header()?;
    image.write_image_data(pixels)?;
    image.finish()?;
    Ok(())
}

/// A whole number of the axis; empty for a mark between whole numbers, as on a short axis.
fn whole(x: f64) -> String {
    if (x - x.round()).abs() <= 1e-3 * x { format!("{x:.0}") } else { String::new() }
}

/// The supported file formats.
enum Form {
    Svg,
    Png,
}

fn form(path: &Path) -> Result<Form> {
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("svg") => Ok(Form::Svg),
        Some("png") => Ok(Form::Png),
        _ => Err(Error::invalid("--plot", path.display(), "a file that ends in .svg or .png")),
    }
}

/// `Ok` if a plot can have this file name. Called before the work begins.
pub(super) fn check(path: Option<&Path>) -> Result<()> {
    let check = |path| form(path).and_then(|_| crate::output::check_writable("--plot", path));
    path.map_or(Ok(()), check)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(points: Vec<(f64, f64)>) -> Plot {
        Plot {
            title: "A title with κ".to_owned(),
            x_label: "x".to_owned(),
            y_label: "y".to_owned(),
            x_scale: if points.len() == 1 { Scale::Linear } else { Scale::Logarithmic },
            series: vec![Series { name: "a <series>".to_owned(), points }],
            even: Some(1.0),
        }
    }

    #[test]
    fn both_forms_are_written_whatever_the_points() {
        let folder = tempfile::tempdir().unwrap();
        let (svg, png) = (folder.path().join("a.svg"), folder.path().join("a.png"));
        for points in [
            vec![(1.0, 2.0), (8.0, 3.0)],
            vec![(4.0, 0.0)],
            vec![],
            vec![(1.0, f64::NAN), (2.0, f64::INFINITY)],
        ] {
            plot(points.clone()).write(&svg).unwrap();
            let text = std::fs::read_to_string(&svg).unwrap();
            assert!(text.starts_with("<svg") && text.contains("A title with κ"), "{text}");
            assert!(text.contains("a &lt;series&gt;"), "{text}");
            plot(points).write(&png).unwrap();
            assert!(std::fs::read(&png).unwrap().starts_with(b"\x89PNG"));
        }
        assert!(plot(vec![]).write(&folder.path().join("a.gif")).unwrap_err().to_string().contains(".svg"));
        assert!(plot(vec![]).write(&folder.path().join("no/a.png")).unwrap_err().to_string().contains("no/"));
    }
}

//! Builds the full image in both ways, looks into each, and removes them. By hand, since it takes minutes and the network:
//! `cargo run --release -p conjure-sandbox --features docker --example full_image`.
//!
//! The first is made of Debian packages; the second is built by the engine from the Dockerfile, with a small Debian as its
//! base, which is made before.

#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "it is a program that fails by panic")]

use std::time::Duration;

use bollard::query_parameters::RemoveImageOptionsBuilder;
use conjure_base::{Clock as _, SystemClock};
use conjure_sandbox::{ImageOptions, ImagePackages, ImageProgress, ImageSource, build_image};
use tokio_util::sync::CancellationToken;

#[path = "../../../tests/system/image/container.rs"]
mod container;

/// What the specification lists (9.3), used and not only found.
const LOOK: &str = r#"
set -e
id -un; pwd; node --version; npm --version; git --version; jq --version; qpdf --version | head -1
pdftotext -v 2>&1 | head -1; curl --version | head -1; wget --version | head -1; python3 -m pip --version
python3 - <<'END'
import io
import pyarrow, openpyxl, xlsxwriter, xlrd, PIL, pptx, docx, pypdf, pdfplumber, pypdfium2, pdf2image, pdfkit, tabula
import reportlab, img2pdf, pandas, numpy, matplotlib, yaml, requests, bs4
from reportlab.pdfgen import canvas
file = io.BytesIO(); page = canvas.Canvas(file); page.drawString(72, 720, "Hello"); page.save()
assert "Hello" in pdfplumber.open(io.BytesIO(file.getvalue())).pages[0].extract_text()
assert "Hello" in pypdf.PdfReader(io.BytesIO(file.getvalue())).pages[0].extract_text()
assert pdf2image.convert_from_bytes(file.getvalue())[0].width > 100
assert pypdfium2.PdfDocument(file.getvalue())[0].render().to_pil().width > 100
frame = pandas.DataFrame({"a": [1, 2]})
table = pyarrow.Table.from_pandas(frame)
assert table.to_pandas()["a"].sum() == 3
frame.to_excel("/tmp/a.xlsx"); assert pandas.read_excel("/tmp/a.xlsx")["a"].sum() == 3
slides = pptx.Presentation(); slides.slides.add_slide(slides.slide_layouts[0]); slides.save("/tmp/a.pptx")
paper = docx.Document(); paper.add_paragraph("Hello"); paper.save("/tmp/a.docx")
matplotlib.use("Agg"); import matplotlib.pyplot as plot
plot.plot([1, 2]); plot.savefig("/tmp/a.png"); assert img2pdf.convert("/tmp/a.png")
print("python", __import__("sys").version.split()[0], "all imported and used")
END
"#;

#[tokio::main]
async fn main() {
    let names = ["conjure-full-debian", "conjure-full-base", "conjure-full-dockerfile"];
    let [debian, base, dockerfile] = names.map(|name| format!("{name}:{}", std::process::id()));
    build(&debian, ImageSource::Debian, ImagePackages::Full, None).await;
    build(&base, ImageSource::Debian, ImagePackages::Minimal, None).await;
    build(&dockerfile, ImageSource::Dockerfile, ImagePackages::Full, Some(&base)).await;
    let docker = container::docker().await;
    for name in [dockerfile, base, debian] {
        docker.remove_image(&name, Some(RemoveImageOptionsBuilder::new().build()), None).await.unwrap();
    }
}

async fn build(name: &str, source: ImageSource, packages: ImagePackages, base: Option<&str>) {
    let begun = SystemClock.deadline(Duration::from_secs(3600));
    // The programs of a build need the network's settings.
    let variables = std::env::vars_os();
    let base = base.map(str::to_owned);
    let options =
        ImageOptions { name: name.parse().unwrap(), source, packages, base, ..ImageOptions::new(variables) };
    let mut listener = |news: ImageProgress| eprintln!("{news:?}");
    let built = build_image(&options, begun, &CancellationToken::new(), &mut listener).await.unwrap();
    let took = Duration::from_secs(3600) - SystemClock.remaining(begun);
    eprintln!("{built:?} took {} s", took.as_secs());
    if packages == ImagePackages::Full {
        eprintln!("{}", container::output_of_image(name, LOOK).await);
    }
}

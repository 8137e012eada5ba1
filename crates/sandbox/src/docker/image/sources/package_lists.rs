//! The files in `docker/` from which images are built.

use crate::docker::image::error::{ImageError, ImageErrorKind};
use crate::docker::image::options::{ImageOptions, ImagePackages};

/// The Dockerfile.
pub(crate) const DOCKERFILE: &str = include_str!("../../../../docker/Dockerfile");

/// The script that creates the user and its directories.
pub(crate) const SETUP: &str = include_str!("../../../../docker/setup.sh");

/// The list of the distribution's packages.
pub(crate) const fn packages(of: ImagePackages) -> &'static str {
    match of {
        ImagePackages::Full => include_str!("../../../../docker/packages/full.txt"),
        ImagePackages::Minimal => include_str!("../../../../docker/packages/minimal.txt"),
    }
}

/// The list of wheels, as `pip` reads it.
pub(crate) const fn wheels(of: ImagePackages) -> &'static str {
    match of {
        ImagePackages::Full => include_str!("../../../../docker/wheels/full.txt"),
        ImagePackages::Minimal => include_str!("../../../../docker/wheels/minimal.txt"),
    }
}

/// Whether a list is empty.
pub(crate) fn is_empty(list: &str) -> bool {
    entries(list).next().is_none()
}

/// The names of all packages of the distribution.
pub(crate) fn all_packages(options: &ImageOptions) -> Vec<&str> {
    entries(packages(options.packages)).chain(options.add.iter().map(String::as_str)).collect()
}

/// Checks the additional packages.
///
/// # Errors
/// `BadRequest` for an invalid name, which could be an option of a program.
pub(crate) fn check(options: &ImageOptions) -> Result<(), ImageError> {
    let is_name = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(c))
            // For apt, a trailing `-` means to remove the package.
            && !text.ends_with('-')
    };
    match options.add.iter().find(|text| !is_name(text)) {
        None => Ok(()),
        Some(text) => Err(ImageError::new(
            ImageErrorKind::BadRequest,
            format!("`{}` is no name of a package", text.escape_debug()),
        )),
    }
}

fn entries(list: &str) -> impl Iterator<Item = &str> {
    list.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The libraries that the specification lists (9.3), by their import name, and the list that contains each.
    const OF_PYTHON: [(&str, &str); 19] = [
        ("pyarrow", "pyarrow=="),
        ("openpyxl", "python3-openpyxl"),
        ("xlsxwriter", "python3-xlsxwriter"),
        ("xlrd", "python3-xlrd"),
        ("pillow", "python3-pil"),
        ("python-pptx", "python-pptx=="),
        ("python-docx", "python3-docx"),
        ("pypdf", "python3-pypdf"),
        ("pdfplumber", "pdfplumber=="),
        ("pypdfium2", "pypdfium2=="),
        ("pdf2image", "pdf2image=="),
        ("pdfkit", "pdfkit=="),
        ("tabula-py", "tabula-py=="),
        ("reportlab", "python3-reportlab"),
        ("img2pdf", "python3-img2pdf"),
        ("pandas, numpy, matplotlib", "python3-matplotlib"),
        ("pyyaml", "python3-yaml"),
        ("requests", "python3-requests"),
        ("beautifulsoup4", "python3-bs4"),
    ];

    #[test]
    fn the_full_image_has_all_that_the_specification_lists() {
        let lists = [packages(ImagePackages::Full), wheels(ImagePackages::Full)].concat();
        let starts = |name: &str| {
            lists.lines().any(|line| line == name || (name.ends_with("==") && line.starts_with(name)))
        };
        for (package, listed) in OF_PYTHON {
            assert!(starts(listed), "`{package}` is in no list");
        }
        for name in "python3 python3-pip python3-venv nodejs npm bash git curl wget jq poppler-utils qpdf python3-numpy \
                     python3-pandas"
            .split_whitespace()
        {
            assert!(starts(name), "`{name}` is in no list");
        }
    }

    #[test]
    fn every_wheel_has_a_version_and_digests() {
        let list = wheels(ImagePackages::Full).replace("\\\n", " ");
        let mut count = 0;
        for wheel in entries(&list) {
            count += 1;
            let (name, digests) = wheel.split_once(' ').unwrap();
            assert!(name.contains("=="), "{wheel}");
            let mut digests = digests.split_whitespace().peekable();
            assert!(digests.peek().is_some());
            assert!(
                digests.all(|one| one.strip_prefix("--hash=sha256:").is_some_and(|hex| hex.len() == 64)),
                "{wheel}"
            );
        }
        assert_eq!(count, 8);
        assert!(is_empty(wheels(ImagePackages::Minimal)));
    }

    #[test]
    fn nothing_is_listed_twice_and_a_further_package_is_a_name() {
        let mut options = ImageOptions::new([]);
        options.add = vec!["libreoffice-core".to_owned(), "g++".to_owned()];
        check(&options).unwrap();
        let all = all_packages(&options);
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        assert!(all.ends_with(&["libreoffice-core", "g++"]));
        for text in ["", "--mode=chrootless", "a,b", "a b", "A", "$(id)", "a;b", "python3-"] {
            options.add = vec![text.to_owned()];
            assert_eq!(check(&options).unwrap_err().kind(), ImageErrorKind::BadRequest, "{text}");
        }
    }
}

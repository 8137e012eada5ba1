//! The fixtures of the repository are scripts, and their README says what is true.

use std::fs;
use std::path::{Path, PathBuf};

use super::{answer, asked, request};
use crate::scripted::{Script, ScriptFormat, ScriptedModel};

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/scripts")
}

#[test]
fn every_fixture_is_a_script_named_as_its_file() {
    let mut names = Vec::new();
    for entry in fs::read_dir(scripts()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let script = Script::from_file(&path).unwrap();
            assert_eq!(script.name(), path.file_stem().and_then(|stem| stem.to_str()));
            names.push(script.name().map(str::to_owned));
        }
    }
    assert_eq!(names.len(), 4, "{names:?}");
}

#[test]
fn no_figure_of_the_sales_report_is_written_in_its_script() {
    let text = fs::read_to_string(scripts().join("sales-report.yaml")).unwrap();
    let sales = fs::read_to_string(scripts().join("../data/sales.csv")).unwrap();
    for line in sales.lines().skip(1) {
        let region = line.split(',').nth(1).unwrap();
        assert!(!text.contains(region), "{region}");
    }
}

#[tokio::test]
async fn the_example_of_the_readme_plays() {
    let readme = fs::read_to_string(scripts().join("README.md")).unwrap();
    let (_, after) = readme.split_once("```yaml\n").unwrap();
    let (example, _) = after.split_once("```").unwrap();
    let model = ScriptedModel::new(Script::from_text(example, ScriptFormat::Yaml, "README.md").unwrap());
    let response = answer(&model, request(vec![asked()])).await;
    assert_eq!(response.content.len(), 2);
}

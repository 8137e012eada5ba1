//! Reports what the tests that ran before this skipped.

#![expect(clippy::print_stdout, reason = "it is a report")]

fn main() {
    match test_support::take_report() {
        Some(report) => print!("\n{report}\n"),
        None => println!("\nno test was skipped\n"),
    }
}

//! Tells the files that this package shares with `tests/it` that their sandboxes are containers here.

fn main() {
    println!("cargo::rustc-cfg=engines");
    println!("cargo::rerun-if-changed=build.rs");
}

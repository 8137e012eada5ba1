//! Tells the build script of `conjure-sandbox` where the sources of the guest are.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::metadata=manifest_dir={}", env!("CARGO_MANIFEST_DIR"));
}

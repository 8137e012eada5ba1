//! Builds the guest, a small static program, for the host's target and embeds it, compressed, in the library.
//!
//! Only for the feature `local`. The sources are those of the `conjure-guest` that this crate depends on; its
//! own build script says where they are, so that it works in the workspace, from Git, vendored, and from a
//! registry. `CONJURE_GUEST=<path>` takes a guest that was built elsewhere. What is embedded is checked: a guest
//! that needs a dynamic linker would fail only later, inside of a container.

#![expect(clippy::disallowed_methods, reason = "a build script reads its environment and starts cargo")]

use std::env;
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use flate2::Compression;
use flate2::write::ZlibEncoder;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const REMEDY: &str = "The guest is the program that runs tool calls in a sandbox; it is built by a nested cargo.\n\
    To build without it, switch the feature `local` off. To give one that was built elsewhere, set\n\
    `CONJURE_GUEST` to its path: `cargo build --release -p conjure-guest --target <TARGET>` with\n\
    `RUSTFLAGS=-Ctarget-feature=+crt-static` makes it.";

fn main() -> Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=CONJURE_GUEST");
    let for_linux = env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux");
    if env::var_os("CARGO_FEATURE_LOCAL").is_none() || !for_linux {
        // On other systems the library itself says that it is for Linux only.
        return Ok(());
    }
    let guest = match env::var_os("CONJURE_GUEST") {
        Some(path) => given(Path::new(&path)),
        None => build(),
    };
    let embedded = guest.and_then(|guest| embed(&guest));
    embedded.map_err(|error| format!("failed to build the guest: {error}\n\n{REMEDY}").into())
}

/// A guest that was built elsewhere.
fn given(path: &Path) -> Result<PathBuf> {
    println!("cargo::rerun-if-changed={}", path.display());
    match path.is_absolute() {
        true => Ok(path.to_owned()),
        false => Err(format!("`CONJURE_GUEST` must be an absolute path, and is `{}`", path.display()).into()),
    }
}

/// Writes the guest, compressed, to where the library includes it from.
fn embed(guest: &Path) -> Result<()> {
    let bytes = fs::read(guest).map_err(|error| format!("cannot read `{}`: {error}", guest.display()))?;
    check_static(&bytes).map_err(|reason| format!("`{}` {reason}", guest.display()))?;
    let embedded = out_dir()?.join("conjure-guest.zlib");
    let mut compressed = ZlibEncoder::new(fs::File::create(&embedded)?, Compression::best());
    compressed.write_all(&bytes)?;
    compressed.finish()?;
    println!("cargo::rustc-env=CONJURE_GUEST_PROGRAM={}", embedded.display());
    Ok(())
}

/// Builds the guest from the sources of our dependency.
fn build() -> Result<PathBuf> {
    let sources = PathBuf::from(variable("DEP_CONJURE_GUEST_MANIFEST_DIR")?);
    for name in ["src", "Cargo.toml", "build.rs"] {
        println!("cargo::rerun-if-changed={}", sources.join(name).display());
    }
    let packaged = sources.join("Cargo.toml.orig").exists();
    if packaged {
        return build_in(&copy_packaged(&sources)?, &[]);
    }
    if let Some(lock) = find_upwards(&sources, "Cargo.lock") {
        println!("cargo::rerun-if-changed={}", lock.display());
    }
    // The workspace's lock stands, and nothing is written beside the sources.
    build_in(&sources, &["--locked"])
}

/// A package from a registry has a manifest without a workspace, and lies in a directory that is not ours to write
/// to. Its copy gets the lock of those who build us, so that it takes the versions that they have.
fn copy_packaged(sources: &Path) -> Result<PathBuf> {
    let out = out_dir()?;
    let copy = out.join("guest-sources");
    if copy.exists() {
        fs::remove_dir_all(&copy)?;
    }
    copy_dir(sources, &copy)?;
    // Without this, cargo takes the package for a stray member of a workspace above `OUT_DIR`.
    let manifest = fs::read_to_string(sources.join("Cargo.toml"))?;
    fs::write(copy.join("Cargo.toml"), format!("{manifest}\n[workspace]\n"))?;
    if let Some(lock) = find_upwards(&out, "Cargo.lock") {
        println!("cargo::rerun-if-changed={}", lock.display());
        fs::copy(lock, copy.join("Cargo.lock"))?;
    }
    Ok(copy)
}

fn copy_dir(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_dir(&entry.path(), &target)?;
        } else {
            // The content only: a registry's files may be read-only, and the copy is replaced later.
            fs::write(target, fs::read(entry.path())?)?;
        }
    }
    Ok(())
}

fn find_upwards(from: &Path, name: &str) -> Option<PathBuf> {
    from.ancestors().map(|dir| dir.join(name)).find(|path| path.is_file())
}

/// Runs the nested cargo, first without the network: what the outer build has fetched usually suffices.
fn build_in(package: &Path, arguments: &[&str]) -> Result<PathBuf> {
    let target = variable("TARGET")?;
    let dir = out_dir()?.join("guest-target");
    let offline = cargo(package, &dir, &target, arguments, &["--offline"])?;
    if !offline.status.success() {
        let online = cargo(package, &dir, &target, arguments, &[])?;
        if !online.status.success() {
            let said = String::from_utf8_lossy(&online.stderr).into_owned();
            return Err(format!("the nested cargo failed ({}):\n{said}", online.status).into());
        }
    }
    Ok(dir.join(target).join("release").join("conjure-guest"))
}

fn cargo(package: &Path, dir: &Path, target: &OsStr, arguments: &[&str], network: &[&str]) -> Result<Output> {
    let mut command = Command::new(variable("CARGO")?);
    command
        .args(["build", "--release", "--bin", "conjure-guest", "--features", "program", "--target"])
        .arg(target)
        .arg("--manifest-path")
        .arg(package.join("Cargo.toml"))
        .args(arguments)
        .args(network)
        // A directory of its own, for intermediate files too: the outer cargo holds the lock of its own.
        .env("CARGO_TARGET_DIR", dir)
        .env("CARGO_BUILD_BUILD_DIR", dir)
        // It beats every other way to give flags, and the outer cargo sets it: without this the guest came out
        // dynamic. With `--target`, the flags do not reach build scripts and procedural macros.
        .env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+crt-static")
        // Clippy and its kin are for the outer build.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CARGO_BUILD_TARGET")
        .env("CARGO_INCREMENTAL", "0")
        // Where `.cargo/config.toml` of those who build us is found, which may name a vendored directory.
        .current_dir(out_dir()?);
    for (key, value) in [
        ("OPT_LEVEL", "s"),
        ("LTO", "fat"),
        ("CODEGEN_UNITS", "1"),
        ("PANIC", "abort"),
        ("STRIP", "symbols"),
        ("DEBUG", "none"),
        ("DEBUG_ASSERTIONS", "false"),
        ("OVERFLOW_CHECKS", "true"),
    ] {
        command.env(format!("CARGO_PROFILE_RELEASE_{key}"), value);
    }
    command.output().map_err(|error| format!("the nested cargo did not start: {error}").into())
}

fn out_dir() -> Result<PathBuf> {
    variable("OUT_DIR").map(PathBuf::from)
}

fn variable(name: &str) -> Result<OsString> {
    env::var_os(name).ok_or_else(|| format!("cargo did not set `{name}`").into())
}

/// Checks that an ELF program needs no interpreter (a dynamic linker).
fn check_static(bytes: &[u8]) -> std::result::Result<(), &'static str> {
    const TRUNCATED: &str = "is a truncated ELF file";
    const INTERPRETER: u64 = 3;
    let (wide, little) = match bytes {
        [0x7f, b'E', b'L', b'F', class @ (1 | 2), order @ (1 | 2), ..] => (*class == 2, *order == 1),
        _ => return Err("is not an ELF program"),
    };
    let number = |offset: usize, width: usize| -> Option<u64> {
        let field = bytes.get(offset..offset.checked_add(width)?)?.iter();
        let join = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
        Some(if little { field.rev().fold(0, join) } else { field.fold(0, join) })
    };
    // Where the table of segments starts, the size of an entry, and their number: ELF-64, else ELF-32.
    let (table, size, count) = if wide {
        (number(32, 8), number(54, 2), number(56, 2))
    } else {
        (number(28, 4), number(42, 2), number(44, 2))
    };
    let (table, size, count) = (table.ok_or(TRUNCATED)?, size.ok_or(TRUNCATED)?, count.ok_or(TRUNCATED)?);
    for index in 0..count {
        let offset = usize::try_from(table.saturating_add(index * size)).map_err(|_| TRUNCATED)?;
        if number(offset, 4).ok_or(TRUNCATED)? == INTERPRETER {
            return Err("is not static: it names a dynamic linker, which a sandbox may not have");
        }
    }
    Ok(())
}

//! `/etc` of a jail: the files that programs need, without secrets of the host.

use std::fs;
use std::path::Path;

use conjure_guest::protocol::{
    Access, Bind, BindContent, IfMissing, MountEntry, MountKind, OwnerMapping, SymlinkPolicy,
};

use super::user::{HOME, INSIDE, NAME};

/// The entries of the host's `/etc` that are shown if they exist. None of them is secret.
const SHOWN: [&str; 31] = [
    "alternatives",
    "ca-certificates",
    "crypto-policies",
    "debian_version",
    "fonts",
    "ghostscript",
    "inputrc",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "magic",
    "magic.mime",
    "mailcap",
    "mime.types",
    "papersize",
    "perl",
    "pki/ca-trust/extracted",
    "pki/tls/certs",
    "pki/tls/openssl.cnf",
    "protocols",
    "rpc",
    "services",
    "shells",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "texmf",
    "timezone",
    "vim",
    "xml",
];

/// Prefixes of further entries: languages and tools have settings for each version.
const SHOWN_BEGINNINGS: [&str; 5] = ["python3", "java-", "ImageMagick-", "ruby", "php"];

/// The mounts in `/etc`. `hosts` and related files are the jail's own, because only the host resolves names.
pub(super) fn mounts(etc: &Path, hostname: &str) -> Vec<MountEntry> {
    let mut mounts = vec![MountEntry { path: "/etc".to_owned(), kind: MountKind::Dir { mode: 0o755 } }];
    let listed = fs::read_dir(etc).into_iter().flatten().flatten();
    let by_beginning = listed
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| SHOWN_BEGINNINGS.iter().any(|beginning| name.starts_with(beginning)));
    let mut shown: Vec<String> = SHOWN.iter().map(|name| (*name).to_owned()).chain(by_beginning).collect();
    shown.sort_unstable();
    shown.dedup();
    mounts.extend(shown.iter().filter(|name| etc.join(name).exists()).map(|name| host_entry(etc, name)));
    // On most systems, these are links into `/usr`.
    for name in ["localtime", "os-release"] {
        let file = etc.join(name);
        if let Some(target) = fs::read_link(&file).ok().and_then(|target| target.to_str().map(str::to_owned))
        {
            mounts.push(MountEntry { path: format!("/etc/{name}"), kind: MountKind::Link { target } });
        } else if let Ok(content) = fs::read_to_string(&file) {
            mounts.push(generated_file(name, content));
        } else if file.exists() {
            mounts.push(host_entry(etc, name));
        }
    }
    mounts.extend([
        generated_file(
            "passwd",
            format!(
                "root:x:0:0:root:/root:/usr/sbin/nologin\n{NAME}:x:{INSIDE}:{INSIDE}::{HOME}:/bin/bash\n\
                 nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
            ),
        ),
        generated_file("group", format!("root:x:0:\n{NAME}:x:{INSIDE}:\nnogroup:x:65534:\n")),
        generated_file("hostname", format!("{hostname}\n")),
        generated_file("hosts", format!("127.0.0.1 localhost\n::1 localhost\n127.0.1.1 {hostname}\n")),
        // Only local files are used for lookups, because a jail has no name service.
        generated_file(
            "nsswitch.conf",
            "passwd: files\ngroup: files\nshadow: files\nhosts: files\nnetworks: files\nprotocols: files\n\
             services: files\nrpc: files\n"
                .to_owned(),
        ),
        generated_file("resolv.conf", String::new()),
    ]);
    mounts
}

/// A file or directory of the host, read-only.
fn host_entry(etc: &Path, name: &str) -> MountEntry {
    let bind = Bind {
        source: etc.join(name).display().to_string(),
        access: Access::ReadOnly,
        content: BindContent::Data,
        links: SymlinkPolicy::Follow,
        missing: IfMissing::Skip,
        owner: OwnerMapping::Unchanged,
    };
    MountEntry { path: format!("/etc/{name}"), kind: MountKind::Bind(bind) }
}

fn generated_file(name: &str, content: String) -> MountEntry {
    MountEntry { path: format!("/etc/{name}"), kind: MountKind::File { mode: 0o644, content } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_secret_stays_with_the_host() {
        let etc = tempfile::tempdir().unwrap();
        for name in
            ["shadow", "passwd", "ssl", "ssl/certs", "ssl/private", "python3.11", "gitconfig", "sudoers"]
        {
            fs::create_dir_all(etc.path().join(name)).unwrap();
        }
        std::os::unix::fs::symlink("/usr/share/zoneinfo/Europe/Paris", etc.path().join("localtime")).unwrap();
        fs::write(etc.path().join("os-release"), "NAME=x\n").unwrap();
        let mounts = mounts(etc.path(), "box");
        let named = |filter: fn(&MountKind) -> bool| -> Vec<&str> {
            mounts
                .iter()
                .filter(|mount_entry| filter(&mount_entry.kind))
                .map(|mount_entry| mount_entry.path.as_str())
                .collect()
        };
        assert_eq!(named(|is| matches!(is, MountKind::Bind(_))), ["/etc/python3.11", "/etc/ssl/certs"]);
        assert_eq!(named(|is| matches!(is, MountKind::Link { .. })), ["/etc/localtime"]);
        let files = named(|is| matches!(is, MountKind::File { .. }));
        assert_eq!(
            files,
            ["os-release", "passwd", "group", "hostname", "hosts", "nsswitch.conf", "resolv.conf"]
                .map(|name| format!("/etc/{name}"))
        );
    }
}

//! `conjure serve` with a certificate.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tokio::process::Command;

use crate::server::{self, RunningServer, python, run_python};

/// An authority of certificates.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// A new one, whose own certificate is written to this file.
    pub(crate) fn new(file: &Path) -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "the authority of a test");
        let key = KeyPair::generate().unwrap();
        fs::write(file, pem("CERTIFICATE", params.self_signed(&key).unwrap().der())).unwrap();
        Self { issuer: Issuer::new(params, key) }
    }

    /// Writes a certificate of this machine with this name, and its key.
    pub(crate) fn certify(&self, name: &str, certificate: &Path, private_key: &Path) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.use_authority_key_identifier_extension = true;
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        fs::write(private_key, pem("PRIVATE KEY", &key.serialize_der())).unwrap();
        fs::write(certificate, pem("CERTIFICATE", signed.der())).unwrap();
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(der);
    format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
}

/// The command of a server with a script, and with data in this home directory.
fn serve(home: &Path) -> Command {
    let mut command = server::serve("local", home, &home.join("data"));
    command.arg("--script").arg(server::script("echo.yaml"));
    command
}

#[tokio::test]
async fn the_server_speaks_tls_with_a_configured_certificate() {
    let Some(python) = python().await else { return };
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("root.pem");
    Authority::new(&root).certify("first", &home.path().join("cert.pem"), &home.path().join("key.pem"));
    let config = home.path().join("config.toml");
    fs::write(&config, "[serve]\ncertificate = \"cert.pem\"\nprivate_key = \"key.pem\"\n").unwrap();
    let mut command = serve(home.path());
    command.arg("--config").arg(config);
    let server = RunningServer::spawn(command).await;
    assert!(server.url().starts_with("https://127.0.0.1:"), "{}", server.url());
    run_python(&python, "tls.py", &[server.url(), root.to_str().unwrap()]).await;
    server.stop().await;
}

#[tokio::test]
async fn an_unusable_certificate_is_reported_before_the_start() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name).display().to_string();
    let authority = Authority::new(&home.path().join("root.pem"));
    authority.certify("first", &home.path().join("cert.pem"), &home.path().join("key.pem"));
    authority.certify("other", &home.path().join("other.pem"), &home.path().join("other-key.pem"));
    for (certificate, key, part) in [
        ("cert.pem", "missing.pem", "missing.pem cannot be read"),
        ("key.pem", "key.pem", "key.pem has no certificate in the form PEM"),
        ("cert.pem", "other-key.pem", "cannot be used together"),
    ] {
        let mut command = serve(home.path());
        command.args(["--certificate", &path(certificate), "--private-key", &path(key)]);
        let output = command.output().await.unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && output.stdout.is_empty(), "{output:?}");
        assert!(stderr.contains(part) && stderr.contains("--private-key FILE"), "{part}: {stderr}");
    }
}

//! A certificate authority for one test.
#![expect(clippy::unwrap_used, reason = "a test that cannot make its certificates has failed")]

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::PrivateKeyDer;
use tokio_rustls::TlsAcceptor;

/// An authority that nobody trusts, in DER, and an acceptor with a certificate for `names` that the authority signed.
///
/// # Panics
///
/// If a name is neither a DNS name nor an address.
#[must_use]
pub fn authority(names: &[&str]) -> (Vec<u8>, TlsAcceptor) {
    authority_until(names, 4000, &[])
}

/// Like [`authority`]. The certificate ends on the first day of `expiry_year`, and if there are `protocols`, the acceptor
/// accepts only those.
///
/// # Panics
///
/// If a name is neither a DNS name nor an address.
#[must_use]
pub fn authority_until(names: &[&str], expiry_year: i32, protocols: &[&str]) -> (Vec<u8>, TlsAcceptor) {
    let mut params = CertificateParams::new([]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let root = params.self_signed(&key).unwrap().der().to_vec();
    let authority = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    // A certificate with the name of its authority looks self-signed.
    params.distinguished_name = DistinguishedName::new();
    params.use_authority_key_identifier_extension = true;
    params.not_after = date_time_ymd(expiry_year, 1, 1);
    let certificate = params.signed_by(&key, &authority).unwrap();
    let mut config =
        rustls::ServerConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            )
            .unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    (root, TlsAcceptor::from(Arc::new(config)))
}

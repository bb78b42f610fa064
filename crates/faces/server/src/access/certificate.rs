//! Client certificates: the names that a verified certificate carries, and the name that an entry of the configuration
//! asks for.
//!
//! The TLS handshake (`tls.rs`) checks that a certificate is genuine. This file only compares names: a DNS name or a
//! URI of the subject alternative names must match whole. The subject's common name is ignored, as usual since RFC
//! 6125, and a wildcard matches nothing.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// The longest name that an entry may ask for: DNS names have at most 253 bytes, URIs may have more.
const NAME_BYTES_MAX: usize = 1024;
/// Names of each kind that are read from one certificate.
const NAMES_MAX: usize = 64;

/// The name that a certificate must carry to match an entry of the configuration: a DNS name such as
/// `billing.clients.example`, or a URI such as `spiffe://example/billing`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateName(Box<str>);

impl CertificateName {
    /// Returns `None` if no certificate can have this name.
    pub fn new(text: &str) -> Option<CertificateName> {
        let fine = (1..=NAME_BYTES_MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_graphic())
            && !text.contains('*');
        fine.then(|| CertificateName(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The names of the certificate that a connection showed; empty if it showed none.
#[derive(Clone, Debug, Default)]
pub(crate) struct PresentedNames {
    /// Whether there was a certificate at all.
    pub(crate) shown: bool,
    dns: Arc<[Box<str>]>,
    uris: Arc<[Box<str>]>,
}

impl PresentedNames {
    /// Reads the names of a certificate chain that the handshake has verified.
    pub(crate) fn of(chain: Option<&[CertificateDer<'_>]>) -> PresentedNames {
        let Some(leaf) = chain.and_then(<[_]>::first) else { return PresentedNames::default() };
        let Ok(cert) = EndEntityCert::try_from(leaf) else {
            return PresentedNames { shown: true, ..PresentedNames::default() };
        };
        let dns = cert.valid_dns_names().take(NAMES_MAX).map(Box::from).collect();
        let uris = cert.valid_uri_names().take(NAMES_MAX).map(Box::from).collect();
        PresentedNames { shown: true, dns, uris }
    }

    /// DNS names are compared without case, URIs exactly.
    pub(crate) fn have(&self, name: &CertificateName) -> bool {
        self.dns.iter().any(|dns| dns.eq_ignore_ascii_case(name.as_str()))
            || self.uris.iter().any(|uri| **uri == *name.0)
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, SanType};

    use super::*;

    fn presented(names: Vec<SanType>) -> PresentedNames {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, "common.example");
        params.subject_alt_names = names;
        let cert = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        PresentedNames::of(Some(&[cert.der().clone()]))
    }

    fn name(text: &str) -> CertificateName {
        CertificateName::new(text).unwrap()
    }

    #[test]
    fn a_certificate_has_the_names_of_its_extension_and_no_other() {
        let uri = "spiffe://example/Billing";
        let names = presented(vec![
            SanType::DnsName("billing.example".try_into().unwrap()),
            SanType::DnsName("*.wild.example".try_into().unwrap()),
            SanType::URI(uri.try_into().unwrap()),
        ]);
        assert!(names.have(&name("billing.example")) && names.have(&name("BILLING.example")));
        assert!(names.have(&name(uri)) && !names.have(&name("spiffe://example/billing")));
        for other in ["example", "a.wild.example", "x.billing.example", "common.example", "billing.example."]
        {
            assert!(!names.have(&name(other)), "{other}");
        }
    }

    #[test]
    fn without_a_certificate_there_is_no_name() {
        let names = PresentedNames::of(None);
        assert!(!names.shown && !names.have(&name("billing.example")));
        assert!(presented(Vec::new()).shown);
    }

    #[test]
    fn names_nobody_can_have_are_refused() {
        for text in ["", "a b", "*.example", "é.example", &"a".repeat(1025)] {
            assert_eq!(CertificateName::new(text), None, "{text}");
        }
    }
}

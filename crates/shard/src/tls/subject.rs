//! The subject of an X.509 certificate (RFC 5280, in DER), as far as people and logins need it.

use std::fmt::Write;

use super::LoginFrom;
use x509_parser::asn1_rs::{Any, FromDer, Tag};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::oid_registry::OID_X509_COMMON_NAME;

/// Who a certificate speaks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// The common names, in the order of the certificate.
    pub common_names: Vec<String>,
    /// The whole name, most specific part first: `CN=worker,O=Lepus,C=DE` (RFC 4514). What is not
    /// printable ASCII is written in hexadecimal numbers.
    pub name: String,
    /// Other names, and what they are.
    alternatives: Vec<(LoginFrom, String)>,
}

impl Subject {
    /// The name of the user that the certificate speaks for, if it has one.
    #[must_use]
    pub fn login_name(&self, from: LoginFrom) -> Option<String> {
        let name = match from {
            LoginFrom::DistinguishedName => Some(self.name.clone()),
            LoginFrom::CommonName => Some(self.common_names.join(",")),
            kind => {
                let found = self.alternatives.iter().find(|(known, _)| *known == kind);
                found.map(|(_, name)| name.clone())
            }
        };
        name.filter(|name| !name.is_empty())
    }
}

/// When a certificate ends, in seconds since 1970. `None` when it is not a well-formed certificate.
#[must_use]
pub fn end_of(certificate: &[u8]) -> Option<i64> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Some(certificate.validity().not_after.timestamp())
}

/// Reads the subject of a certificate. `None` when it is not a well-formed certificate; the chain
/// is not checked here.
#[must_use]
pub fn parse_subject(certificate: &[u8]) -> Option<Subject> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let mut subject = Subject::default();
    let mut parts = Vec::new();
    for set in certificate.subject().iter_rdn() {
        let mut part = String::new();
        for pair in set.iter() {
            let text = decode_text(pair.attr_value())?;
            if !part.is_empty() {
                part.push('+');
            }
            let _ = write!(part, "{}=", attribute(&pair.attr_type().to_id_string()));
            escape(&text, &mut part);
            if *pair.attr_type() == OID_X509_COMMON_NAME {
                subject.common_names.push(text);
            }
        }
        parts.push(part);
    }
    parts.reverse();
    subject.name = parts.join(",");
    if let Some(names) = certificate.subject_alternative_name().ok()? {
        // Those that are text; addresses and the like are not names of users.
        let names = names.value.general_names.iter().filter_map(|name| match name {
            GeneralName::RFC822Name(text) => Some((LoginFrom::MailAddress, (*text).to_owned())),
            GeneralName::DNSName(text) => Some((LoginFrom::DnsName, (*text).to_owned())),
            GeneralName::URI(text) => Some((LoginFrom::Uri, (*text).to_owned())),
            _ => None,
        });
        subject.alternatives = names.collect();
    }
    Some(subject)
}

fn decode_text(value: &Any<'_>) -> Option<String> {
    match value.tag() {
        // 16-bit characters.
        Tag::BmpString => {
            let units = value.data.chunks(2).map(|pair| match pair {
                [high, low] => u16::from_be_bytes([*high, *low]),
                _ => 0xfffd,
            });
            char::decode_utf16(units).collect::<Result<_, _>>().ok()
        }
        Tag::Utf8String | Tag::PrintableString | Tag::Ia5String => {
            String::from_utf8(value.data.to_vec()).ok()
        }
        // TeletexString as Latin-1.
        _ => Some(value.data.iter().map(|&byte| char::from(byte)).collect()),
    }
}

/// The short name of an attribute, or its number in dots.
fn attribute(number: &str) -> &str {
    match number {
        "2.5.4.3" => "CN",
        "2.5.4.4" => "SN",
        "2.5.4.5" => "SERIALNUMBER",
        "2.5.4.6" => "C",
        "2.5.4.7" => "L",
        "2.5.4.8" => "ST",
        "2.5.4.9" => "STREET",
        "2.5.4.10" => "O",
        "2.5.4.11" => "OU",
        "2.5.4.12" => "TITLE",
        "2.5.4.42" => "GIVENNAME",
        "2.5.4.43" => "INITIALS",
        "2.5.4.44" => "GENERATIONQUALIFIER",
        "2.5.4.65" => "PSEUDONYM",
        "1.2.840.113549.1.9.1" => "EMAILADDRESS",
        "0.9.2342.19200300.100.1.1" => "UID",
        "0.9.2342.19200300.100.1.25" => "DC",
        number => number,
    }
}

/// RFC 4514, section 2.4, with everything but printable ASCII as the numbers of its bytes in UTF-8.
fn escape(text: &str, into: &mut String) {
    let last = text.len().saturating_sub(1);
    for (index, byte) in text.bytes().enumerate() {
        let is_special = matches!(byte, b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';')
            || (index == 0 && matches!(byte, b' ' | b'#'))
            || (index == last && byte == b' ');
        match byte {
            ..32 | 126.. => {
                let _ = write!(into, "\\{byte:02X}");
                continue;
            }
            _ if is_special => into.push('\\'),
            _ => {}
        }
        into.push(char::from(byte));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, DnValue, KeyPair};

    fn certificate(parts: &[(DnType, &str)]) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, text) in parts {
            params.distinguished_name.push(kind.clone(), *text);
        }
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn the_name_is_written_most_specific_first() {
        let der = certificate(&[
            (DnType::CountryName, "DE"),
            (DnType::OrganizationName, "Hare, Rabbit & Co"),
            (DnType::CommonName, "wörker"),
        ]);
        let subject = parse_subject(&der).unwrap();
        assert_eq!(subject.common_names, ["wörker"]);
        assert_eq!(subject.name, "CN=w\\C3\\B6rker,O=Hare\\, Rabbit & Co,C=DE");
    }

    #[test]
    fn the_name_of_the_user_is_what_the_operator_chose() {
        let mut params = CertificateParams::new(vec!["worker.example".to_owned()]).unwrap();
        let mail = "worker@example".try_into().unwrap();
        params.subject_alt_names.push(rcgen::SanType::Rfc822Name(mail));
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "Lepus");
        params.distinguished_name.push(DnType::CommonName, "worker");
        let der = params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec();
        let subject = parse_subject(&der).unwrap();
        let name = |from| subject.login_name(from);
        assert_eq!(name(LoginFrom::DistinguishedName).unwrap(), "CN=worker,O=Lepus");
        assert_eq!(name(LoginFrom::CommonName).unwrap(), "worker");
        assert_eq!(name(LoginFrom::DnsName).unwrap(), "worker.example");
        assert_eq!(name(LoginFrom::MailAddress).unwrap(), "worker@example");
        assert_eq!(name(LoginFrom::Uri), None);
        let two = Subject { common_names: vec!["alice".into(), "guest".into()], ..subject };
        assert_eq!(two.login_name(LoginFrom::CommonName).unwrap(), "alice,guest");
        assert_eq!(Subject::default().login_name(LoginFrom::DistinguishedName), None);
    }

    #[test]
    fn a_subject_may_be_empty() {
        assert_eq!(parse_subject(&certificate(&[])), Some(Subject::default()));
    }

    #[test]
    fn cut_or_damaged_certificates_do_no_harm() {
        let der = certificate(&[(DnType::CommonName, "x"), (DnType::LocalityName, "y")]);
        for length in 0..der.len() {
            assert_eq!(parse_subject(&der[..length]), None);
        }
        for position in 0..der.len() {
            for bit in 0..8 {
                let mut damaged = der.clone();
                damaged[position] ^= 1 << bit;
                // Any answer will do, as long as there is one.
                let _ = parse_subject(&damaged);
            }
        }
        assert_eq!(parse_subject(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
    }

    #[test]
    fn every_form_of_text_is_read() {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        let wide = "wörker€".try_into().unwrap();
        params.distinguished_name.push(DnType::CommonName, DnValue::BmpString(wide));
        let old = "old".try_into().unwrap();
        params.distinguished_name.push(DnType::OrganizationName, DnValue::TeletexString(old));
        let number = DnType::CustomDnType(vec![2, 5, 4, 99]);
        params.distinguished_name.push(number, "x");
        let der = params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec();
        let subject = parse_subject(&der).unwrap();
        assert_eq!(subject.common_names, ["wörker€"]);
        assert_eq!(subject.name, "2.5.4.99=x,O=old,CN=w\\C3\\B6rker\\E2\\82\\AC");
    }

    #[test]
    fn what_means_something_in_a_name_is_escaped() {
        let mut text = String::new();
        escape("#a+b ", &mut text);
        assert_eq!(text, "\\#a\\+b\\ ");
    }
}

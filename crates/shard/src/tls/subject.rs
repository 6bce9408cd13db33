//! The subject of an X.509 certificate (RFC 5280, in DER), as far as people and logins need it.

use std::fmt::Write;

use super::LoginFrom;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
const OCTETS: u8 = 0x04;
/// `[0] EXPLICIT`, the version of a certificate.
const VERSION: u8 = 0xa0;
/// `[3] EXPLICIT`, the extensions of a certificate.
const EXTENSIONS: u8 = 0xa3;
const COMMON_NAME: [u8; 3] = [0x55, 4, 3];
/// The extension with alternative names.
const ALTERNATIVE_NAMES: [u8; 3] = [0x55, 29, 17];

/// Who a certificate speaks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// The common names, in the order of the certificate.
    pub common_names: Vec<String>,
    /// The whole name, most specific part first: `CN=worker,O=Lepus,C=DE` (RFC 4514). What is not
    /// printable ASCII is written in hexadecimal numbers.
    pub name: String,
    /// Other names: the kind's tag, and the name.
    alternatives: Vec<(u8, String)>,
}

impl Subject {
    /// The name of the user that the certificate speaks for, if it has one.
    #[must_use]
    pub fn login_name(&self, from: LoginFrom) -> Option<String> {
        let alternative = |kind: u8| {
            let found = self.alternatives.iter().find(|(tag, _)| *tag == kind);
            found.map(|(_, name)| name.clone())
        };
        let name = match from {
            LoginFrom::DistinguishedName => Some(self.name.clone()),
            LoginFrom::CommonName => Some(self.common_names.join(",")),
            LoginFrom::MailAddress => alternative(0x81),
            LoginFrom::DnsName => alternative(0x82),
            LoginFrom::Uri => alternative(0x86),
        };
        name.filter(|name| !name.is_empty())
    }
}

/// Reads the subject of a certificate. `None` when it is not a well-formed certificate; the chain
/// is not checked here.
#[must_use]
pub fn parse_subject(certificate: &[u8]) -> Option<Subject> {
    let mut outer = Reader(certificate);
    let mut certificate = Reader(outer.expect(SEQUENCE)?);
    let mut body = Reader(certificate.expect(SEQUENCE)?);
    let (tag, _) = body.next()?;
    if tag == VERSION {
        body.next()?; // serial number
    }
    body.expect(SEQUENCE)?; // signature algorithm
    body.expect(SEQUENCE)?; // issuer
    body.expect(SEQUENCE)?; // validity
    let mut names = Reader(body.expect(SEQUENCE)?);
    let mut parts = Vec::new();
    let mut subject = Subject::default();
    while !names.0.is_empty() {
        let mut set = Reader(names.expect(SET)?);
        let mut part = String::new();
        while !set.0.is_empty() {
            let mut pair = Reader(set.expect(SEQUENCE)?);
            let kind = pair.expect(OBJECT_IDENTIFIER)?;
            let (tag, bytes) = pair.next()?;
            let text = decode_text(tag, bytes)?;
            if !part.is_empty() {
                part.push('+');
            }
            let _ = write!(part, "{}=", attribute(kind));
            escape(&text, &mut part);
            if kind == COMMON_NAME {
                subject.common_names.push(text);
            }
        }
        parts.push(part);
    }
    parts.reverse();
    subject.name = parts.join(",");
    body.expect(SEQUENCE)?; // public key
    while !body.0.is_empty() {
        let (tag, content) = body.next()?;
        if tag == EXTENSIONS {
            subject.alternatives = alternatives(content)?;
        }
    }
    Some(subject)
}

fn alternatives(extensions: &[u8]) -> Option<Vec<(u8, String)>> {
    let mut extensions = Reader(Reader(extensions).expect(SEQUENCE)?);
    let mut found = Vec::new();
    while !extensions.0.is_empty() {
        let mut extension = Reader(extensions.expect(SEQUENCE)?);
        if extension.expect(OBJECT_IDENTIFIER)? != ALTERNATIVE_NAMES {
            continue;
        }
        // A word on whether it is critical may come first.
        let value = loop {
            match extension.next()? {
                (OCTETS, value) => break value,
                _ => continue,
            }
        };
        let mut names = Reader(Reader(value).expect(SEQUENCE)?);
        while !names.0.is_empty() {
            let (tag, bytes) = names.next()?;
            // Those that are text; addresses and the like are not names of users.
            if let Ok(text) = String::from_utf8(bytes.to_vec()) {
                found.push((tag, text));
            }
        }
    }
    Some(found)
}

/// Elements of tag, length and content.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, mut rest) = rest.split_first()?;
        let mut length = usize::from(first & 0x7f);
        if first & 0x80 != 0 {
            // A longer length, in so many bytes. Lengths beyond 32 bits are not certificates.
            if length > 4 {
                return None;
            }
            let (digits, behind) = rest.split_at_checked(length)?;
            length = digits.iter().fold(0, |sum, &digit| sum << 8 | usize::from(digit));
            rest = behind;
        }
        let (content, behind) = rest.split_at_checked(length)?;
        self.0 = behind;
        Some((tag, content))
    }

    fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().and_then(|(found, content)| (found == tag).then_some(content))
    }
}

fn decode_text(tag: u8, bytes: &[u8]) -> Option<String> {
    match tag {
        // BMPString: 16-bit characters.
        0x1e => {
            let units = bytes.chunks(2).map(|pair| match pair {
                [high, low] => u16::from_be_bytes([*high, *low]),
                _ => 0xfffd,
            });
            char::decode_utf16(units).collect::<Result<_, _>>().ok()
        }
        // UTF8String, PrintableString, IA5String; TeletexString as Latin-1.
        0x0c | 0x13 | 0x16 => String::from_utf8(bytes.to_vec()).ok(),
        _ => Some(bytes.iter().map(|&byte| char::from(byte)).collect()),
    }
}

/// The short name of an attribute, or its number in dots.
fn attribute(kind: &[u8]) -> String {
    const MAIL: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1];
    const UID: [u8; 10] = [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1];
    const DC: [u8; 10] = [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25];
    let name = match kind {
        [0x55, 4, 3] => "CN",
        [0x55, 4, 4] => "SN",
        [0x55, 4, 5] => "SERIALNUMBER",
        [0x55, 4, 6] => "C",
        [0x55, 4, 7] => "L",
        [0x55, 4, 8] => "ST",
        [0x55, 4, 9] => "STREET",
        [0x55, 4, 10] => "O",
        [0x55, 4, 11] => "OU",
        [0x55, 4, 12] => "TITLE",
        [0x55, 4, 42] => "GIVENNAME",
        [0x55, 4, 43] => "INITIALS",
        [0x55, 4, 44] => "GENERATIONQUALIFIER",
        [0x55, 4, 65] => "PSEUDONYM",
        kind if *kind == MAIL => "EMAILADDRESS",
        kind if *kind == UID => "UID",
        kind if *kind == DC => "DC",
        _ => return dotted(kind),
    };
    name.to_owned()
}

fn dotted(kind: &[u8]) -> String {
    let mut text = String::new();
    let mut arc = 0u64;
    for (index, &byte) in kind.iter().enumerate() {
        if index == 0 {
            let _ = write!(text, "{}.{}", byte / 40, byte % 40);
            continue;
        }
        arc = arc << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            let _ = write!(text, ".{arc}");
            arc = 0;
        }
    }
    text
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
    use rcgen::{CertificateParams, DnType, KeyPair};

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
    fn unknown_attributes_keep_their_number() {
        assert_eq!(dotted(&[0x55, 4, 0x81, 0x00]), "2.5.4.128");
        assert_eq!(attribute(&[0x55, 4, 99]), "2.5.4.99");
        let mut text = String::new();
        escape("#a+b ", &mut text);
        assert_eq!(text, "\\#a\\+b\\ ");
    }
}

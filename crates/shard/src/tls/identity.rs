//! The server's certificate and key, and whose client certificates it trusts.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::subject::end_of;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{CertificateError, RootCertStore, ServerConfig};

/// Where the TLS identity comes from. All files are PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, then those of its issuers.
    pub certificate: PathBuf,
    /// The certificate's private key: PKCS #8, PKCS #1 or SEC 1.
    pub key: PathBuf,
    /// The authorities whose client certificates are accepted; without it clients are not asked.
    pub client_authorities: Option<PathBuf>,
    /// Whether a client without a certificate is refused.
    pub client_certificate_required: bool,
    /// Which client certificates hold no longer, if that is looked at.
    pub revocations: Option<Revocations>,
    /// What of a client's certificate is the name of its user.
    pub login_from: LoginFrom,
}

/// Which client certificates hold no longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revocations {
    /// The authorities' revocation lists, PEM.
    pub file: PathBuf,
    /// What has to be on no list.
    pub check: RevocationCheck,
}

/// What of a client's certificate and its issuers has to be on no revocation list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevocationCheck {
    /// All but the trusted authority; for each there must be a list that is up to date.
    Chain,
    /// The client's own; for it there must be a list that is up to date.
    Peer,
    /// All but the trusted authority, as far as there are lists, up to date or not.
    BestEffort,
}

/// What of a client's certificate is the name of its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginFrom {
    /// The whole subject: `CN=worker,O=Lepus`.
    DistinguishedName,
    /// The common name of the subject; several are joined by commas.
    CommonName,
    /// The first alternative name that is a host's name.
    DnsName,
    /// The first alternative name that is a mail address.
    MailAddress,
    /// The first alternative name that is a URI.
    Uri,
}

/// Why an identity cannot be used, in words that name the file at fault and what it is for.
#[derive(Debug)]
pub struct TlsError(String);

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TlsError {}

impl TlsError {
    /// With the whole text.
    pub(crate) fn new(text: impl fmt::Display) -> TlsError {
        TlsError(text.to_string())
    }
}

/// A file with what it has to have in it.
#[derive(Clone, Copy)]
struct Part<'a> {
    /// As it stands before "in FILE" in a message.
    name: &'static str,
    file: &'a Path,
}

impl Part<'_> {
    /// What is wrong with it, behind "the certificate in FILE".
    fn fault(self, what: impl fmt::Display) -> TlsError {
        TlsError(format!("the {} in {} {what}", self.name, self.file.display()))
    }

    /// The file as PEM cannot be read.
    fn unreadable(self, error: &pem::Error) -> TlsError {
        match error {
            pem::Error::Io(error) => self.fault(format_args!("cannot be read: {error}")),
            pem::Error::NoItemsFound => self.missing(),
            error => self.fault(format_args!("cannot be read: {error}")),
        }
    }

    /// The file has none.
    fn missing(self) -> TlsError {
        TlsError(format!("{} has no {} in PEM", self.file.display(), self.name))
    }

    /// It is there and of no use. What the library says of certificates it says of those of a peer.
    fn unusable(self, error: &rustls::Error) -> TlsError {
        match error {
            rustls::Error::InvalidCertificate(CertificateError::BadEncoding) => {
                self.fault("is not in the form of X.509")
            }
            rustls::Error::InvalidCertificate(error) => {
                self.fault(format_args!("cannot be used: {error}"))
            }
            error => self.fault(format_args!("cannot be used: {error}")),
        }
    }
}

/// What new handshakes use; exchanged at run time.
#[derive(Debug)]
pub struct Identity {
    files: TlsFiles,
    current: Mutex<Current>,
}

/// What was read last.
#[derive(Clone, Debug)]
struct Current {
    config: Arc<ServerConfig>,
    /// When the server's certificate ends, in seconds since 1970.
    ends: Option<i64>,
}

impl Identity {
    /// Reads the files.
    ///
    /// # Errors
    /// When a file cannot be read, holds nothing of what it should, or key and certificate do not
    /// belong together.
    pub fn load(files: TlsFiles) -> Result<Identity, TlsError> {
        let current = Mutex::new(read(&files)?);
        Ok(Identity { files, current })
    }

    /// Reads the files again. Connections that exist keep what they have.
    ///
    /// # Errors
    /// As for [`Identity::load`]; then the old identity stays.
    pub fn reload(&self) -> Result<(), TlsError> {
        let fresh = read(&self.files)?;
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    /// What of a client's certificate is the name of its user.
    pub(crate) fn login_from(&self) -> LoginFrom {
        self.files.login_from
    }

    /// What the next handshake uses.
    #[must_use]
    pub fn current(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner).config)
    }

    /// When the server's certificate ends, in seconds since 1970; `None` where it does not say so in a form that is known.
    #[must_use]
    pub fn ends(&self) -> Option<i64> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).ends
    }
}

fn read(files: &TlsFiles) -> Result<Current, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let certificate = Part { name: "certificate", file: &files.certificate };
    let own_key = Part { name: "key", file: &files.key };
    let chain = read_certificates(certificate)?;
    let ends = chain.first().and_then(|certificate| end_of(certificate));
    let key =
        PrivateKeyDer::from_pem_file(&files.key).map_err(|error| own_key.unreadable(&error))?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(TlsError::new)?;
    let builder = match &files.client_authorities {
        None if files.client_certificate_required => {
            return Err(TlsError::new(
                "client certificates are required, but no authority for them is named",
            ));
        }
        None => builder.with_no_client_auth(),
        Some(file) => builder.with_client_cert_verifier(verifier(files, file, provider)?),
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            let certificate = files.certificate.display();
            own_key.fault(format_args!("is not that of the certificate in {certificate}"))
        }
        rustls::Error::InvalidCertificate(_) => certificate.unusable(&error),
        error => own_key.unusable(&error),
    })?;
    if files.client_authorities.is_some() {
        // A resumed session keeps a certificate that may not hold any more.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(Current { config: Arc::new(config), ends })
}

/// What judges client certificates by the authorities in `file`.
fn verifier(
    files: &TlsFiles,
    file: &Path,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    let authorities = Part { name: "authorities' certificates", file };
    for authority in read_certificates(authorities)? {
        roots.add(authority).map_err(|error| authorities.unusable(&error))?;
    }
    let mut verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    if !files.client_certificate_required {
        verifier = verifier.allow_unauthenticated();
    }
    let mut at_fault = authorities;
    if let Some(Revocations { file, check }) = &files.revocations {
        at_fault = Part { name: "revocation lists", file };
        let lists: Vec<_> = CertificateRevocationListDer::pem_file_iter(file)
            .and_then(Iterator::collect)
            .map_err(|error| at_fault.unreadable(&error))?;
        if lists.is_empty() {
            return Err(at_fault.missing());
        }
        verifier = verifier.with_crls(lists);
        verifier = match check {
            RevocationCheck::Chain => verifier.enforce_revocation_expiration(),
            RevocationCheck::Peer => {
                verifier.only_check_end_entity_revocation().enforce_revocation_expiration()
            }
            RevocationCheck::BestEffort => verifier.allow_unknown_revocation_status(),
        };
    }
    verifier.build().map_err(|error| at_fault.fault(format_args!("cannot be used: {error}")))
}

fn read_certificates(part: Part<'_>) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Vec<_> = CertificateDer::pem_file_iter(part.file)
        .and_then(Iterator::collect)
        .map_err(|error| part.unreadable(&error))?;
    if found.is_empty() {
        return Err(part.missing());
    }
    Ok(found)
}

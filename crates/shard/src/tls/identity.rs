//! The server's certificate and key, and whose client certificates it trusts.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::subject::end_of;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};

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

/// Why an identity cannot be used.
#[derive(Debug)]
pub struct TlsError {
    /// The file at fault, if it is one file's.
    pub file: Option<PathBuf>,
    /// What is wrong.
    pub reason: String,
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(f, "{}: {}", file.display(), self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

impl std::error::Error for TlsError {}

fn fault(file: &Path, reason: impl fmt::Display) -> TlsError {
    TlsError { file: Some(file.to_owned()), reason: reason.to_string() }
}

fn misfit(reason: impl fmt::Display) -> TlsError {
    TlsError { file: None, reason: reason.to_string() }
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
    let chain = read_certificates(&files.certificate)?;
    let ends = chain.first().and_then(|certificate| end_of(certificate));
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| fault(&files.key, error))?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(misfit)?;
    let builder = match &files.client_authorities {
        None if files.client_certificate_required => {
            return Err(misfit(
                "client certificates are required, but no authority for them is named",
            ));
        }
        None => builder.with_no_client_auth(),
        Some(file) => builder.with_client_cert_verifier(verifier(files, file, provider)?),
    };
    let mut config = builder.with_single_cert(chain, key).map_err(misfit)?;
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
    for authority in read_certificates(file)? {
        roots.add(authority).map_err(|error| fault(file, error))?;
    }
    let mut verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    if !files.client_certificate_required {
        verifier = verifier.allow_unauthenticated();
    }
    let mut at_fault = file;
    if let Some(Revocations { file, check }) = &files.revocations {
        at_fault = file;
        let lists: Vec<_> = CertificateRevocationListDer::pem_file_iter(file)
            .and_then(Iterator::collect)
            .map_err(|error| fault(file, error))?;
        if lists.is_empty() {
            return Err(fault(file, "no revocation list in it"));
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
    verifier.build().map_err(|error| fault(at_fault, error))
}

fn read_certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Vec<_> = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect)
        .map_err(|error| fault(file, error))?;
    if found.is_empty() {
        return Err(fault(file, "no certificate in it"));
    }
    Ok(found)
}

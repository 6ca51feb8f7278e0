//! TLS, and mutual TLS: the files of certificates, and how they are read again.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ropewalk_sync::Mutex;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// The protocols that a client may choose from, the preferred one first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The files of a server with TLS, all in PEM form.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Its certificate, and behind it those that lead to an authority.
    pub cert: PathBuf,
    /// The key of the certificate.
    pub key: PathBuf,
    /// The authorities of clients' certificates: with them, a client must show one.
    pub client_ca: Option<PathBuf>,
}

/// What is wrong with the file of a setting.
fn wrong(setting: &str, path: &Path, what: impl std::fmt::Display) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, format!("{setting}: the file {:?} {what}", path.display()))
}

fn unread(setting: &str, path: &Path, error: &PemError) -> io::Error {
    match error {
        PemError::Io(error) => wrong(setting, path, format_args!("cannot be read: {error}")),
        PemError::NoItemsFound => {
            wrong(setting, path, "has no private key in PEM form that is not encrypted")
        }
        error => wrong(setting, path, format_args!("is no PEM: {error}")),
    }
}

/// The certificates of a file, one at least.
pub(crate) fn certificates(setting: &str, path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = found.map_err(|error| unread(setting, path, &error))?;
    if found.is_empty() {
        return Err(wrong(setting, path, "has no certificate in PEM form"));
    }
    Ok(found)
}

/// The certificates of a file, as authorities.
pub(crate) fn authorities(setting: &str, path: &Path) -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for one in certificates(setting, path)? {
        let added = roots.add(one);
        added
            .map_err(|error| wrong(setting, path, format_args!("has a certificate that is none: {error}")))?;
    }
    Ok(roots)
}

impl Tls {
    fn load(&self) -> io::Result<Arc<ServerConfig>> {
        let certificates = certificates("tls_cert", &self.cert)?;
        let key = PrivateKeyDer::from_pem_file(&self.key);
        let key = key.map_err(|error| unread("tls_key", &self.key, &error))?;
        let provider = Arc::new(default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions().map_err(io::Error::other)?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = Arc::new(authorities("tls_client_ca", path)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
                let verifier = verifier.map_err(|error| wrong("tls_client_ca", path, error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut made = builder.with_single_cert(certificates, key).map_err(|error| {
            let what = format_args!("does not fit tls_cert, {:?}: {error}", self.cert.display());
            wrong("tls_key", &self.key, what)
        })?;
        if self.client_ca.is_some() {
            // A session that is resumed has the client's certificate from the first handshake, and nothing looks at its
            // time again. So each connection begins with a whole handshake.
            made.session_storage = Arc::new(NoServerSessionStorage {});
            made.send_tls13_tickets = 0;
        }
        made.alpn_protocols = PROTOCOLS.iter().map(|name| name.to_vec()).collect();
        Ok(Arc::new(made))
    }
}

/// The certificates of a server, as its files had them last.
#[derive(Debug)]
pub(crate) struct Certificates {
    files: Tls,
    now: Mutex<Arc<ServerConfig>>,
}

impl Certificates {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// When one cannot be used; the error names its setting.
    pub(crate) fn new(files: Tls) -> io::Result<Self> {
        let now = Mutex::new(files.load()?);
        Ok(Self { files, now })
    }

    /// What new connections are served with.
    pub(super) fn current(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.now.lock())
    }

    /// Reads the files again, for new connections. With an error all stays as it was.
    pub(crate) fn reload(&self) -> io::Result<()> {
        // Tickets of former sessions end with what made them: a client shows its certificate anew.
        let loaded = self.files.load()?;
        let former = std::mem::replace(&mut *self.now.lock(), loaded);
        drop(former);
        Ok(())
    }
}

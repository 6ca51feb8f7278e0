//! An authority of certificates, and its files.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use ropewalk_gateway::Tls;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{
    ClientConfig, DEFAULT_VERSIONS, RootCertStore, ServerConfig, SupportedProtocolVersion,
};

/// A folder that is gone with the test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ropewalk-served-{}-{number}", std::process::id()));
        fs::create_dir(&path).expect("a folder");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// See the module.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: Folder,
}

/// A certificate and its key, in PEM form.
pub(crate) struct Issued {
    pub(crate) cert: String,
    pub(crate) key: String,
}

/// Files of a server.
pub(crate) struct Files {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

impl Issued {
    pub(crate) fn parts(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let cert = CertificateDer::from_pem_slice(self.cert.as_bytes()).expect("a certificate");
        (vec![cert], PrivateKeyDer::from_pem_slice(self.key.as_bytes()).expect("a key"))
    }

    pub(crate) fn write(&self, folder: &Path) -> Files {
        let files = Files { cert: folder.join("cert.pem"), key: folder.join("key.pem") };
        fs::write(&files.cert, &self.cert).expect("written");
        fs::write(&files.key, &self.key).expect("written");
        files
    }
}

impl Files {
    /// What encrypts for a server that is none of ours.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let read = |path: &Path| fs::read_to_string(path).expect("a file");
        let (certs, key) = Issued { cert: read(&self.cert), key: read(&self.key) }.parts();
        let builder = ServerConfig::builder_with_provider(default_provider().into());
        let builder = builder.with_safe_default_protocol_versions().expect("versions").with_no_client_auth();
        TlsAcceptor::from(Arc::new(builder.with_single_cert(certs, key).expect("a certificate")))
    }

    pub(crate) fn tls(&self, client_ca: Option<PathBuf>) -> Tls {
        Tls { cert: self.cert.clone(), key: self.key.clone(), client_ca }
    }
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("an authority");
        let folder = Folder::new();
        fs::write(folder.0.join("ca.pem"), issuer.pem()).expect("written");
        Self { issuer, folder }
    }

    /// The file of its certificate.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.0.join("ca.pem")
    }

    /// A certificate for a name; one that has expired, if that is wanted.
    pub(crate) fn issue(&self, name: &str, has_expired: bool) -> Issued {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, format!("common {name}"));
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        if has_expired {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        }
        let key = KeyPair::generate().expect("a key");
        let cert = params.signed_by(&key, &self.issuer).expect("a certificate");
        Issued { cert: cert.pem(), key: key.serialize_pem() }
    }

    /// The files of a server for `localhost`.
    pub(crate) fn server_files(&self) -> Files {
        self.issue("localhost", false).write(&self.folder.0)
    }

    /// What a client trusts and shows.
    pub(crate) fn client(&self, shown: Option<&Issued>, protocols: &[&str]) -> Arc<ClientConfig> {
        self.client_of(DEFAULT_VERSIONS, shown, protocols)
    }

    /// The same, of a client that speaks these versions.
    pub(crate) fn client_of(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        shown: Option<&Issued>,
        protocols: &[&str],
    ) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).expect("an authority");
        let builder = ClientConfig::builder_with_provider(default_provider().into());
        let builder = builder.with_protocol_versions(versions).expect("versions");
        let builder = builder.with_root_certificates(roots);
        let mut made = match shown {
            None => builder.with_no_client_auth(),
            Some(issued) => {
                let (certs, key) = issued.parts();
                builder.with_client_auth_cert(certs, key).expect("a certificate")
            }
        };
        made.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(made)
    }
}

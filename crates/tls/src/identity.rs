//! The pair of keys that a job's key makes, and what TLS is told of it.
//!
//! Both ends present the same public key, raw (RFC 7250), and take nothing else from the other. A
//! caller and a called one sign different things in TLS 1.3, so neither can be handed the other's
//! own words. Old versions, resumption and early data are off.

use std::fmt;
use std::sync::Arc;

use eyrie_control::auth::Key;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::ring;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
};

/// What the seed of the pair is derived for, so that it says nothing about the job's key.
const CONTEXT: &str = "eyrie 2026 Ed25519 key of a job for TLS";
/// A seed of Ed25519 in PKCS #8 (RFC 8410) stands behind this.
const PKCS8: [u8; 16] = *b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";

/// How TLS is spoken in a job.
#[derive(Clone)]
pub(crate) struct Identity {
    pub client: Arc<ClientConfig>,
    pub server: Arc<ServerConfig>,
}

impl Identity {
    pub fn of(key: &Key) -> Result<Identity, Error> {
        let seed = blake3::derive_key(CONTEXT, &key.0);
        let der = PrivatePkcs8KeyDer::from([&PKCS8[..], &seed].concat());
        let signing = ring::sign::any_eddsa_type(&der)?;
        let public = signing.public_key().ok_or(Error::General("no public key".into()))?;
        let public = public.as_ref().to_vec();
        let own = vec![CertificateDer::from(public.clone())];
        let own = Arc::new(CertifiedKey::new(own, signing));
        let provider = Arc::new(ring::default_provider());
        let algorithms = provider.signature_verification_algorithms;
        let same = Arc::new(Same { public, algorithms });
        let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&same) as Arc<dyn ServerCertVerifier>)
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(
                Arc::clone(&own),
            )));
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(same)
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(own)));
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        Ok(Identity { client: Arc::new(client), server: Arc::new(server) })
    }
}

/// Takes the job's public key, and no other.
struct Same {
    public: Vec<u8>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl fmt::Debug for Same {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Same(..)")
    }
}

impl Same {
    fn judge(&self, found: &CertificateDer<'_>, more: &[CertificateDer<'_>]) -> Result<(), Error> {
        if found.as_ref() == self.public && more.is_empty() {
            return Ok(());
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
    }
}

/// TLS 1.2 is not spoken.
fn too_old() -> Result<HandshakeSignatureValid, Error> {
    Err(Error::General("signed as in TLS 1.2".into()))
}

impl ServerCertVerifier for Same {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.judge(end_entity, intermediates)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        too_old()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Same {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.judge(end_entity, intermediates)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        too_old()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

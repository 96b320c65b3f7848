//! What connections between nodes go over, and whether others may read them.

use clap::Args;
use clap::builder::FalseyValueParser;
use eyrie_control::Transport;

/// What connections between nodes go over, and what others on the network may see.
#[derive(Debug, Clone, Args)]
pub struct NetworkOptions {
    /// Encrypt all connections between nodes, and to the controller (TLS 1.3 with a key of the
    /// job). Small messages then take the way of all others. A job on one node has no connections
    #[arg(long, env = "EYRIE_TLS", value_parser = FalseyValueParser::new())]
    pub tls: bool,
    /// What messages between nodes go over: tcp, tcp:COUNT (2 to 16 connections between any two
    /// nodes, by all equally good routes; not with --tls), libfabric (or libfabric:PROVIDER, as
    /// verbs; else EYRIE_PROVIDER or its first one), or auto: libfabric between nodes that have a
    /// provider which is better than TCP. Takes libfabric.so.1 on the nodes, and goes without
    /// --tls [default: tcp]
    #[arg(long, value_name = "WHAT", env = "EYRIE_TRANSPORT")]
    pub transport: Option<Transport>,
}

impl NetworkOptions {
    /// What was asked for, with the provider of the environment; `saved` if nothing was.
    pub fn transport(&self, saved: Transport) -> Transport {
        let provider = std::env::var("EYRIE_PROVIDER").ok();
        self.transport.clone().unwrap_or(saved).with(provider.as_deref())
    }

    /// Refuses to send what is to be encrypted over what is not.
    pub fn check(&self, tls: bool, transport: &Transport) -> Result<(), &'static str> {
        if tls && !transport.is_encrypted() {
            return Err(
                "--tls encrypts one TCP connection; what goes over libfabric or several is \
                        not encrypted: leave one of --tls and --transport out",
            );
        }
        Ok(())
    }
}

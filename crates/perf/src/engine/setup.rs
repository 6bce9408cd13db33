//! The beginning of a run: connections stage by stage, until all are ready.

use super::{Engine, Phase};
use crate::link::{Link, LinkState};
use crate::plan::{LinkPlan, Stage};
use crate::uri::Uri;
use lepus_amqp::Table;
use lepus_amqp::client::ClientOptions;
use mio::{Interest, Token};
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Connections that may be on their way to being ready at the same time.
const OPENING_MAX: usize = 64;
/// The run fails when setting up makes no progress for this long.
const SETUP_TIMEOUT: Duration = Duration::from_secs(30);

impl Engine {
    /// Makes all connections, stage by stage; false when interrupted.
    pub(super) fn set_up(&mut self) -> Result<bool, String> {
        for stage in [Stage::Setup, Stage::Consume, Stage::Produce] {
            let now = self.scene.clock.now();
            self.phase = Phase::Setting(stage);
            self.progress_at = now;
            let (these, later) =
                std::mem::take(&mut self.later).into_iter().partition(|link| link.stage == stage);
            self.later = later;
            let these: Vec<LinkPlan> = these;
            self.waiting = these.into_iter().map(|link| (now + link.delay, link)).collect();
            self.ready = self.links.len();
            while !self.waiting.is_empty() || self.ready < self.links.len() {
                self.connect()?;
                self.turn()?;
                if self.interrupted.load(Ordering::Relaxed) {
                    return Ok(false);
                }
                let stale = self.scene.clock.now().since(self.progress_at) > SETUP_TIMEOUT;
                if stale && self.waiting.front().is_none_or(|(at, _)| *at <= self.progress_at) {
                    let late = self.links.iter().find(|link| is_opening(link));
                    return Err(late.map_or_else(String::new, Link::awaited));
                }
            }
        }
        Ok(true)
    }

    /// Makes connections that are due, as many as may open at once.
    fn connect(&mut self) -> Result<(), String> {
        let now = self.scene.clock.now();
        while self.links.len() - self.ready < OPENING_MAX
            && self.waiting.front().is_some_and(|(at, _)| *at <= now)
        {
            let Some((_, plan)) = self.waiting.pop_front() else {
                return Ok(());
            };
            let at = self.links.len();
            let uri = &self.plan.uris[at % self.plan.uris.len()];
            let fail =
                |error: io::Error| format!("cannot connect to {}:{}: {error}", uri.host, uri.port);
            let stream = connect(uri).map_err(fail)?;
            stream.set_nodelay(true).map_err(fail)?;
            stream.set_nonblocking(true).map_err(fail)?;
            let mut stream = mio::net::TcpStream::from_std(stream);
            let interest = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(&mut stream, Token(at), interest).map_err(fail)?;
            let options = self.client_options(uri, &plan.name);
            self.links.push(Link::new(plan, stream, options, now));
            self.enqueue(at);
        }
        Ok(())
    }

    fn client_options(&self, uri: &Uri, name: &str) -> ClientOptions {
        let defaults = ClientOptions::default();
        let capabilities = defaults.properties.get("capabilities").cloned();
        let mut properties = Table::new()
            .with("product", "lepus perf")
            .with("version", env!("CARGO_PKG_VERSION"))
            .with("platform", "Rust")
            .with("connection_name", name);
        if let Some(capabilities) = capabilities {
            properties.insert("capabilities", capabilities);
        }
        ClientOptions {
            user: uri.user.clone(),
            password: uri.password.clone(),
            vhost: uri.vhost.clone(),
            frame_max: self.plan.frame_bytes_max,
            heartbeat: self.plan.heartbeat_seconds,
            properties,
            ..defaults
        }
    }
}

fn is_opening(link: &Link) -> bool {
    matches!(link.state(), LinkState::Opening | LinkState::Scripting)
}

/// Connects to the first address of the host that answers.
fn connect(uri: &Uri) -> io::Result<TcpStream> {
    let mut last = io::Error::other("the host name has no address");
    for address in (uri.host.as_str(), uri.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, Duration::from_secs(10)) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

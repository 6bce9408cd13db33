//! The beginning of a run: connections stage by stage, until all are ready.

use super::{Engine, Phase};
use crate::link::{Link, LinkState};
use crate::peer::{client_options, connect};
use crate::plan::{LinkPlan, SocketOptions, Stage};
use crate::to_stderr;
use crate::uri::Uri;
use lepus_amqp::client::ClientOptions;
use lepus_base::Instant;
use mio::{Interest, Token};
use std::io;
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Connections that may be on their way to being ready at the same time.
const OPENING_MAX: usize = 64;
/// The run fails when setting up makes no progress for this long.
const SETUP_TIMEOUT: Duration = Duration::from_secs(30);

/// Pause between two attempts to reach a broker that does not listen yet.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// Setting up that takes longer than this tells how far it is, each time it has passed.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(3);

impl SocketOptions {
    fn apply(&self, stream: &TcpStream) -> io::Result<()> {
        use rustix::net::sockopt;
        stream.set_nodelay(self.no_delay)?;
        if let Some(bytes) = self.send_bytes {
            sockopt::set_socket_send_buffer_size(stream, bytes)?;
        }
        if let Some(bytes) = self.receive_bytes {
            sockopt::set_socket_recv_buffer_size(stream, bytes)?;
        }
        Ok(())
    }
}

impl Engine {
    /// Waits, where that was asked for, until enough brokers listen, and goes on with these; false when interrupted.
    fn await_servers(&mut self) -> Result<bool, String> {
        let Some(timeout) = self.plan.run.startup_timeout else {
            return Ok(true);
        };
        let until = self.scene.clock.now() + timeout;
        let wanted = self.plan.run.servers_min.clamp(1, self.plan.uris.len());
        loop {
            let mut up = self.plan.uris.clone();
            up.retain(|uri| connect(uri).is_ok());
            if up.len() >= wanted {
                self.plan.uris = up;
                return Ok(true);
            }
            if self.interrupted.load(Ordering::Relaxed) {
                return Ok(false);
            }
            if self.scene.clock.now() >= until {
                return Err(format!(
                    "{} of {wanted} brokers listen after {} s (--servers-startup-timeout)",
                    up.len(),
                    timeout.as_secs_f64()
                ));
            }
            std::thread::sleep(RETRY_INTERVAL);
        }
    }

    /// Tells how far a long set-up is.
    fn tell_progress(&self, told_at: &mut Instant) {
        let now = self.scene.clock.now();
        if now.since(*told_at) < PROGRESS_INTERVAL {
            return;
        }
        *told_at = now;
        let opening = self.waiting.len() + self.later.len();
        let all = self.links.len() + opening;
        to_stderr(format_args!("{} of {all} connections are ready", self.ready));
    }

    /// Makes all connections, stage by stage; false when interrupted.
    pub(super) fn set_up(&mut self) -> Result<bool, String> {
        if !self.await_servers()? {
            return Ok(false);
        }
        let mut told_at = self.scene.clock.now();
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
                self.tell_progress(&mut told_at);
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
            self.plan.run.socket.apply(&stream).map_err(fail)?;
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
        ClientOptions {
            frame_max: self.plan.frame_bytes_max,
            heartbeat: self.plan.heartbeat_seconds,
            ..client_options(uri, name)
        }
    }
}

fn is_opening(link: &Link) -> bool {
    matches!(link.state(), LinkState::Opening | LinkState::Scripting)
}

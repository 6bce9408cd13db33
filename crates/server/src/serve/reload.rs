//! Reading the certificate again, on a thread of its own: files may be where reading takes long.

use crate::log::Log;
use lepus_shard::tls::Identity;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

/// Where one asks for it.
#[derive(Debug)]
pub struct Reload {
    wishes: SyncSender<()>,
    log: Log,
}

impl Reload {
    /// Starts the thread, which ends with the value. `identity` is what is read again, if anything
    /// is.
    ///
    /// # Errors
    /// When the system has no thread.
    pub fn start(identity: Option<Arc<Identity>>, log: &Log) -> Result<Reload, String> {
        // One that is being carried out, and one behind it: all further ones ask for the same.
        let (wishes, receiver) = sync_channel(1);
        let teller = log.clone();
        std::thread::Builder::new()
            .name("reload".to_owned())
            .spawn(move || carry_out(&receiver, identity.as_deref(), &teller))
            .map_err(|error| format!("cannot start the reload thread: {error}"))?;
        Ok(Reload { wishes, log: log.clone() })
    }

    /// Asks for it and returns at once; the log tells what came of it.
    pub fn ask(&self) {
        if let Err(TrySendError::Full(())) = self.wishes.try_send(()) {
            self.log.warning(
                "reload-waits",
                "the certificate's files are still being read since an earlier SIGHUP; they are \
                 read once more after that",
            );
        }
    }
}

fn carry_out(wishes: &Receiver<()>, identity: Option<&Identity>, log: &Log) {
    for () in wishes {
        let Some(identity) = identity else {
            log.info("nothing-to-reload", "SIGHUP reads the certificate again, and none is set");
            continue;
        };
        log.info("tls-reload", "reads the certificate and its key again");
        match identity.reload() {
            Ok(()) => log.info("tls-reloaded", "new connections use the certificate as it is now"),
            Err(error) => {
                log.error("tls-reload-failed", format!("the old certificate stays in use: {error}"))
            }
        }
    }
}

//! The broker's side of the control socket.

use super::{CONNECTIONS_MAX, PATIENCE_SECONDS, REQUEST_BYTES_MAX, audit};
use crate::audit::Audit;
use crate::lock::{FileLock, LockError};
use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, UCred};
use serde_json::{Value, json};
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Answers one request; an error is text for the operator.
pub type Handler = dyn Fn(&Value) -> Result<Value, String> + Send + Sync;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;
/// What a socket is called until it listens, behind its name.
const FRESH: &str = ".new";

/// The listening socket; its file goes away with it.
#[derive(Debug)]
pub struct ControlServer {
    path: PathBuf,
    /// Device and number of the file that was made: whatever else is found there stays.
    own: (u64, u64),
    /// Held as long as the socket is there.
    _lock: FileLock,
}

impl ControlServer {
    /// Listens at `path` and answers on threads of its own; `audit` is told of every order. A socket
    /// left over there is replaced, that of another broker is not: a lock beside it tells them apart. Nor
    /// is a file that is no socket.
    ///
    /// # Errors
    /// When the socket cannot be made, or another broker has it, with the path in the text.
    pub fn start(
        path: &Path,
        handler: Arc<Handler>,
        audit: &Audit,
    ) -> Result<ControlServer, String> {
        let failed = |error: std::io::Error| {
            let too_long = error.raw_os_error() == Some(Errno::NAMETOOLONG.raw_os_error());
            let hint = if too_long || error.kind() == std::io::ErrorKind::InvalidInput {
                "; a socket's path is at most about 100 bytes long, choose another with --control-socket"
            } else {
                ""
            };
            format!("cannot make the control socket {}: {error}{hint}", path.display())
        };
        for path in [path, &beside(path, FRESH)] {
            if is_foreign(path) {
                return Err(format!(
                    "the control socket would replace {}, which is no socket; choose another path with \
                     --control-socket",
                    path.display()
                ));
            }
        }
        let lock = FileLock::take(&beside(path, ".lock")).map_err(|error| match error {
            LockError::InUse(holder) => in_use(path, holder),
            LockError::Io(error) => failed(error),
        })?;
        // A broker that takes no such lock.
        if UnixStream::connect(path).is_ok() {
            return Err(in_use(path, None));
        }
        let listener = listen(path).map_err(failed)?;
        let own = identity(path).map_err(failed)?;
        let (sender, receiver) = sync_channel(CONNECTIONS_MAX);
        for _ in 0..CONNECTIONS_MAX {
            // A token is one connection that may be served.
            sender.try_send(()).map_err(|_| "no tokens".to_owned())?;
        }
        let counter = Counter { handler, audit: audit.clone() };
        std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || accept(&listener, &counter, &sender, &receiver))
            .map_err(failed)?;
        Ok(ControlServer { path: path.to_owned(), own, _lock: lock })
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        // Somebody may have removed it, or put something else there.
        if identity(&self.path).is_ok_and(|found| found == self.own) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn in_use(path: &Path, holder: Option<u32>) -> String {
    let who = holder.map_or_else(
        || "another program".to_owned(),
        |pid| format!("the running lepus with process id {pid}"),
    );
    format!(
        "the control socket {} is in use by {who}; stop that one, or choose another path with \
         --control-socket",
        path.display()
    )
}

/// Whether there is something that no broker has left.
fn is_foreign(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|found| !found.file_type().is_socket())
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// Device and number of a file.
fn identity(path: &Path) -> std::io::Result<(u64, u64)> {
    let found = std::fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// Binds beside the path and renames, so that a left-over socket is replaced in one step.
fn listen(path: &Path) -> std::io::Result<UnixListener> {
    let fresh = beside(path, FRESH);
    match std::fs::remove_file(&fresh) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = bind(&fresh)?;
    std::fs::set_permissions(&fresh, Permissions::from_mode(0o600))?;
    std::fs::rename(&fresh, path)?;
    Ok(listener)
}

/// A listener whose file is its owner's alone from the first moment, whatever the umask: Linux gives
/// the file what the socket has. Elsewhere the umask decides until the permissions are set.
fn bind(path: &Path) -> std::io::Result<UnixListener> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

/// What serves the connections.
#[derive(Clone)]
struct Counter {
    handler: Arc<Handler>,
    audit: Audit,
}

fn accept(
    listener: &UnixListener,
    counter: &Counter,
    tokens: &SyncSender<()>,
    free: &Receiver<()>,
) {
    loop {
        if free.recv().is_err() {
            return;
        }
        let Ok((stream, _)) = listener.accept() else {
            // Out of file descriptors: wait for one instead of spinning.
            std::thread::sleep(Duration::from_millis(100));
            let _ = tokens.try_send(());
            continue;
        };
        let (counter, token) = (counter.clone(), tokens.clone());
        let spawned =
            std::thread::Builder::new().name("control-peer".to_owned()).spawn(move || {
                // Given back however it ends.
                let _token = Token(token);
                serve(&stream, &counter);
            });
        if spawned.is_err() {
            let _ = tokens.try_send(());
        }
    }
}

/// A connection that may be served; another one may be when it is dropped.
struct Token(SyncSender<()>);

impl Drop for Token {
    fn drop(&mut self) {
        let _ = self.0.try_send(());
    }
}

/// Whether this user may give orders: the one that the broker runs as, or root.
fn may_order(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

fn serve(stream: &UnixStream, counter: &Counter) {
    let patience = Some(Duration::from_secs(PATIENCE_SECONDS));
    if stream.set_read_timeout(patience).is_err() || stream.set_write_timeout(patience).is_err() {
        return;
    }
    let mut writer = stream;
    let caller = socket_peercred(stream).ok();
    let Some(caller) = caller.filter(|caller| may_order(caller.uid.as_raw())) else {
        audit::tell_of_stranger(&counter.audit, caller.as_ref());
        let text = "only the user that the broker runs as, and root, may give orders";
        // Whoever does not take the answer does not need it.
        let _ = writeln!(writer, "{}", json!({ "error": text }));
        return;
    };
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        let mut limited = (&mut reader).take(REQUEST_BYTES_MAX);
        match limited.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let complete = line.ends_with(b"\n");
        let answer = if complete {
            answer(&line, &caller, counter)
        } else {
            json!({"error": format!("a request is one line of at most {REQUEST_BYTES_MAX} bytes")})
        };
        let mut text = answer.to_string();
        text.push('\n');
        if writer.write_all(text.as_bytes()).is_err() || !complete {
            return;
        }
    }
}

fn answer(line: &[u8], caller: &UCred, counter: &Counter) -> Value {
    let result = match serde_json::from_slice::<Value>(line) {
        Ok(request) => {
            let result = (counter.handler)(&request);
            audit::tell(&counter.audit, caller, &request, result.as_ref().map_err(String::as_str));
            result
        }
        Err(error) => Err(format!("not a JSON object: {error}")),
    };
    match result {
        Ok(value) => json!({"ok": value}),
        Err(text) => json!({"error": text}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_probe::Scratch;

    #[test]
    fn the_socket_is_its_owners_alone_from_the_first_moment() {
        let root = Scratch::new("control-mode");
        let path = root.path().join("c.sock");
        let _listener = bind(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn orders_come_from_the_own_user_and_from_root() {
        let own = rustix::process::geteuid().as_raw();
        assert!(may_order(own) && may_order(0));
        assert!(!may_order(own + 1));
    }
}

//! The broker's side of the control socket.

use super::{CONNECTIONS_MAX, PATIENCE_SECONDS, REQUEST_BYTES_MAX};
use serde_json::{Value, json};
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Answers one request; an error is text for the operator.
pub type Handler = dyn Fn(&Value) -> Result<Value, String> + Send + Sync;

/// The listening socket; its file goes away with it.
#[derive(Debug)]
pub struct ControlServer {
    path: PathBuf,
}

impl ControlServer {
    /// Listens at `path` and answers on threads of its own. A socket left over there is replaced:
    /// the caller holds the data directory, so nobody else answers on it.
    ///
    /// # Errors
    /// When the socket cannot be made, with the path in the text.
    pub fn start(path: &Path, handler: Arc<Handler>) -> Result<ControlServer, String> {
        let failed = |error: std::io::Error| {
            let hint = if error.kind() == std::io::ErrorKind::InvalidInput {
                "; a socket's path is at most about 100 bytes long, choose another with --control-socket"
            } else {
                ""
            };
            format!("cannot make the control socket {}: {error}{hint}", path.display())
        };
        let listener = listen(path).map_err(failed)?;
        let (sender, receiver) = sync_channel(CONNECTIONS_MAX);
        for _ in 0..CONNECTIONS_MAX {
            // A token is one connection that may be served.
            sender.try_send(()).map_err(|_| "no tokens".to_owned())?;
        }
        std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || accept(&listener, &handler, &sender, &receiver))
            .map_err(failed)?;
        Ok(ControlServer { path: path.to_owned() })
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        // The file may have been removed by hand; then there is nothing to remove.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Binds beside the path and renames, so that the socket never stands open to others and a
/// left-over one is replaced in one step.
fn listen(path: &Path) -> std::io::Result<UnixListener> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let beside = PathBuf::from(name);
    match std::fs::remove_file(&beside) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&beside)?;
    std::fs::set_permissions(&beside, Permissions::from_mode(0o600))?;
    std::fs::rename(&beside, path)?;
    Ok(listener)
}

fn accept(
    listener: &UnixListener,
    handler: &Arc<Handler>,
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
        let (handler, token) = (Arc::clone(handler), tokens.clone());
        let spawned =
            std::thread::Builder::new().name("control-peer".to_owned()).spawn(move || {
                serve(&stream, &handler);
                let _ = token.try_send(());
            });
        if spawned.is_err() {
            let _ = tokens.try_send(());
        }
    }
}

fn serve(stream: &UnixStream, handler: &Arc<Handler>) {
    let patience = Some(Duration::from_secs(PATIENCE_SECONDS));
    if stream.set_read_timeout(patience).is_err() || stream.set_write_timeout(patience).is_err() {
        return;
    }
    let mut reader = BufReader::new(stream);
    let mut writer = stream;
    loop {
        let mut line = Vec::new();
        let mut limited = (&mut reader).take(REQUEST_BYTES_MAX);
        match limited.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let complete = line.ends_with(b"\n");
        let answer = if complete {
            answer(&line, handler)
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

fn answer(line: &[u8], handler: &Arc<Handler>) -> Value {
    let result = match serde_json::from_slice::<Value>(line) {
        Ok(request) => handler(&request),
        Err(error) => Err(format!("not a JSON object: {error}")),
    };
    match result {
        Ok(value) => json!({"ok": value}),
        Err(text) => json!({"error": text}),
    }
}

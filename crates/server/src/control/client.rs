//! The operator's side of the control socket.

use super::{ANSWER_BYTES_MAX, PATIENCE_SECONDS};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why an order was not carried out.
#[derive(Debug)]
pub enum ControlError {
    /// Nobody answers at the socket.
    NotRunning(PathBuf, std::io::Error),
    /// Somebody else answers at the socket: the user id of that process.
    Stranger(PathBuf, u32),
    /// The broker refused, in its own words.
    Refused(String),
    /// The conversation broke off.
    Broken(String),
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ControlError::NotRunning(path, error)
                if error.kind() == std::io::ErrorKind::PermissionDenied =>
            {
                write!(
                    f,
                    "{} may only be opened by the user that the broker runs as: run this as that \
                     user, or as root",
                    path.display()
                )
            }
            ControlError::NotRunning(path, error) => write!(
                f,
                "no running lepus answers at {} ({error}); \
                 name its data directory with --data-dir, or start one with `lepus serve`",
                path.display()
            ),
            ControlError::Stranger(path, user) => write!(
                f,
                "a process of user {user} listens at {}, who is neither root, nor you, nor the \
                 owner of its directory: nothing was sent; see who made that socket",
                path.display()
            ),
            ControlError::Refused(text) => f.write_str(text),
            ControlError::Broken(text) => {
                write!(f, "the conversation with the broker broke off: {text}")
            }
        }
    }
}

impl std::error::Error for ControlError {}

/// Sends one request to the broker at `path` and gives the value of its answer.
///
/// # Errors
/// When nobody answers, the broker refuses, or the answer is not one.
pub fn ask(path: &Path, request: &Value) -> Result<Value, ControlError> {
    ask_within(path, request, Duration::from_secs(PATIENCE_SECONDS))
}

/// Like [`ask`], for an order that takes longer: the answer may come within `patience`.
///
/// # Errors
/// As with [`ask`].
pub fn ask_within(path: &Path, request: &Value, patience: Duration) -> Result<Value, ControlError> {
    let stream = UnixStream::connect(path)
        .map_err(|error| ControlError::NotRunning(path.to_owned(), error))?;
    let listener = rustix::net::sockopt::socket_peercred(&stream)
        .map_err(|error| ControlError::Broken(std::io::Error::from(error).to_string()))?;
    ask_listener(path, listener.uid.as_raw(), &stream, request, patience)
}

/// Asks a process of the user `listener`.
fn ask_listener(
    path: &Path,
    listener: u32,
    stream: &UnixStream,
    request: &Value,
    patience: Duration,
) -> Result<Value, ControlError> {
    check_listener(path, listener)?;
    exchange(stream, request, patience)
}

/// Refuses to talk to a process that is not the broker's, as far as its user tells: orders carry hashes
/// of passwords.
fn check_listener(path: &Path, listener: u32) -> Result<(), ControlError> {
    let broken = |error: std::io::Error| ControlError::Broken(error.to_string());
    let own = rustix::process::geteuid().as_raw();
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let directory = std::fs::metadata(directory).map_err(broken)?;
    match is_trusted(listener, own, directory.uid(), directory.mode()) {
        true => Ok(()),
        false => Err(ControlError::Stranger(path.to_owned(), listener)),
    }
}

/// Whether a listener of that user may be the broker. The owner of the directory can put a socket there
/// in any case; where others can too, it may be theirs.
fn is_trusted(listener: u32, own: u32, owner: u32, mode: u32) -> bool {
    listener == 0 || listener == own || (listener == owner && mode & 0o022 == 0)
}

fn exchange(
    mut stream: &UnixStream,
    request: &Value,
    patience: Duration,
) -> Result<Value, ControlError> {
    let broken = |error: std::io::Error| ControlError::Broken(error.to_string());
    let patience = Some(patience);
    stream.set_read_timeout(patience).map_err(broken)?;
    stream.set_write_timeout(patience).map_err(broken)?;
    let line = format!("{request}\n");
    stream.write_all(line.as_bytes()).map_err(broken)?;
    let mut line = Vec::new();
    let mut reader = BufReader::new(stream).take(ANSWER_BYTES_MAX);
    reader.read_until(b'\n', &mut line).map_err(broken)?;
    if !line.ends_with(b"\n") {
        return Err(ControlError::Broken("no complete answer came".to_owned()));
    }
    let mut answer: Value = serde_json::from_slice(&line)
        .map_err(|error| ControlError::Broken(format!("not JSON: {error}")))?;
    if let Some(text) = answer["error"].as_str() {
        return Err(ControlError::Refused(text.to_owned()));
    }
    Ok(answer["ok"].take())
}

/// Like [`ask`], following `next` until a table is complete; other answers come as they are. Rows whose
/// order the broker leaves open are put in that of their first columns, and of those that are of one thing, met twice,
/// the last is kept.
///
/// # Errors
/// As with [`ask`].
pub fn ask_table(path: &Path, request: &Value) -> Result<Value, ControlError> {
    let mut request = request.clone();
    let mut whole = ask(path, &request)?;
    while let Some(next) = whole.get_mut("next").map(Value::take) {
        if next.is_null() {
            break;
        }
        request["from"] = next;
        let mut part = ask(path, &request)?;
        for list in ["rows", "order"] {
            let more = part[list].as_array_mut().map(std::mem::take);
            if let (Some(all), Some(mut more)) = (whole[list].as_array_mut(), more) {
                all.append(&mut more);
            }
        }
        whole["next"] = part.get_mut("next").map_or(json!(null), Value::take);
    }
    if let Some(order) = whole.get_mut("order").map(Value::take)
        && let (Some(order), Some(rows)) = (order.as_array(), whole["rows"].as_array_mut())
    {
        let numbers = order.iter().map(|number| number.as_u64().unwrap_or(u64::MAX));
        // What moved from one shard to another while it was listed may be there twice: it is told as it was met last.
        let numbered: BTreeMap<u64, Value> = numbers.zip(rows.drain(..)).collect();
        rows.extend(numbered.into_values());
    }
    if let Some(columns) = whole.get("named_by").and_then(Value::as_u64)
        && let Some(rows) = whole["rows"].as_array_mut()
    {
        keep_last(rows, columns as usize);
    }
    if let Some(columns) = whole.get("sorted_by").and_then(Value::as_u64)
        && let Some(rows) = whole["rows"].as_array_mut()
    {
        let text = |row: &Value, column: u64| match &row[column as usize] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        rows.sort_by_cached_key(|row| (0..columns).map(|at| text(row, at)).collect::<Vec<_>>());
    }
    if let Some(object) = whole.as_object_mut() {
        object.remove("next");
        object.remove("sorted_by");
        object.remove("named_by");
        object.remove("order");
    }
    Ok(whole)
}

/// Keeps the last of rows that have so many of their first columns in common.
fn keep_last(rows: &mut Vec<Value>, columns: usize) {
    let mut met = HashSet::new();
    let mut name = |row: &Value| {
        let columns: Vec<&Value> = (0..columns).map(|at| &row[at]).collect();
        met.insert(json!(columns).to_string())
    };
    let mut is_last: Vec<bool> = rows.iter().rev().map(&mut name).collect();
    rows.retain(|_| is_last.pop().unwrap_or(true));
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_probe::Scratch;

    #[test]
    fn orders_go_to_root_to_oneself_and_to_the_owner_of_a_directory_that_is_closed_to_others() {
        let (root, me, broker, other) = (0, 1000, 999, 65_534);
        for (listener, own, owner, mode, expected) in [
            (root, me, me, 0o777, true),
            (me, me, root, 0o777, true),
            (broker, root, broker, 0o755, true),
            (broker, root, broker, 0o700, true),
            (broker, root, broker, 0o775, false),
            (other, root, root, 0o777, false),
            (other, root, broker, 0o755, false),
            (other, me, root, 0o1777, false),
        ] {
            let found = is_trusted(listener, own, owner, mode);
            assert_eq!(found, expected, "{listener} for {own} in {mode:o} of {owner}");
        }
    }

    /// What a listener of that user gets to read, and what the answer is.
    fn sent_to(listener: u32) -> (String, Result<Value, ControlError>) {
        let root = Scratch::new("control-listener");
        let path = root.path().join("control.sock");
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"{\"ok\": 7}\n").unwrap();
        let request = json!({"order": "user add", "password_hash": "c2VjcmV0"});
        let answer = ask_listener(&path, listener, &ours, &request, Duration::from_secs(60));
        theirs.set_nonblocking(true).unwrap();
        let mut sent = [0; 1000];
        let count = theirs.read(&mut sent).unwrap_or(0);
        (String::from_utf8_lossy(&sent[..count]).into_owned(), answer)
    }

    #[test]
    fn a_stranger_gets_nothing_to_read() {
        let own = rustix::process::geteuid().as_raw();
        let (sent, answer) = sent_to(own);
        assert!(sent.contains("c2VjcmV0"), "{sent}");
        assert_eq!(answer.unwrap(), json!(7));
        let stranger = own + 1;
        let (sent, answer) = sent_to(stranger);
        assert_eq!(sent, "");
        let error = answer.unwrap_err();
        assert!(matches!(error, ControlError::Stranger(_, user) if user == stranger), "{error}");
        assert!(error.to_string().contains("nothing was sent"), "{error}");
    }
}

//! The configuration file: two keys of it are set, everything else stays as it is, comments included.

use crate::ground::check_writable;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use toml_edit::{DocumentMut, Item, Value};

/// The keys that are set, at the top of the file.
const SHARDS: &str = "shards";
const PLACEMENT: &str = "placement";

/// The text with the two settings in it.
///
/// # Errors
/// When it is not TOML, with `path`, line and column, or when a key is there as something that no setting can be.
pub fn with_settings(
    path: &str,
    text: &str,
    shards: Option<usize>,
    placement: &str,
) -> Result<String, String> {
    let mut document = parse(path, text)?;
    let shards = shards.and_then(|shards| i64::try_from(shards).ok());
    set(&mut document, SHARDS, shards.map_or_else(|| Value::from("auto"), Value::from));
    set(&mut document, PLACEMENT, Value::from(placement));
    Ok(document.to_string())
}

/// Whether the file at `path` could be written to: it is TOML or not there, and files can be made in its directory.
///
/// # Errors
/// In words, with the place in the file.
pub fn check(path: &Path) -> Result<(), String> {
    let text = read(path)?;
    parse(&path.display().to_string(), &text)?;
    let parent = directory(&real(path));
    match parent.is_dir() {
        // The file itself is replaced by a new one beside it.
        true => check_writable(&parent)
            .map_err(|error| format!("{} cannot be written: {error}", path.display())),
        false => Err(format!("{}: there is no directory {}", path.display(), parent.display())),
    }
}

/// Sets both settings in the file at `path`, or makes it; `shards` none for as many as the placement leaves. Who reads
/// it meanwhile sees the old file or the new one.
///
/// # Errors
/// In words; the file is as it was then.
pub fn write(path: &Path, shards: Option<usize>, placement: &str) -> Result<(), String> {
    let text = read(path)?;
    let text = with_settings(&path.display().to_string(), &text, shards, placement)?;
    let real = real(path);
    replace(&real, &text).map_err(|error| format!("{}: {error}", path.display()))
}

fn read(path: &Path) -> Result<String, String> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

fn parse(path: &str, text: &str) -> Result<DocumentMut, String> {
    let document: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| {
        let at = error.span().map_or(0, |span| span.start).min(text.len());
        let before = &text.as_bytes()[..at];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        let column = 1 + before.iter().rev().take_while(|byte| **byte != b'\n').count();
        format!("{path}:{line}:{column}: not valid TOML: {}", error.message().replace('\n', "; "))
    })?;
    for key in [SHARDS, PLACEMENT] {
        if document.get(key).is_some_and(|item| !matches!(item, Item::Value(_))) {
            return Err(format!("{path}: {key} is a table there, but a setting with one value"));
        }
    }
    Ok(document)
}

/// Sets a key; spaces and comment behind an old value stay.
fn set(document: &mut DocumentMut, key: &str, mut value: Value) {
    match document.get_mut(key).and_then(Item::as_value_mut) {
        Some(old) => {
            *value.decor_mut() = old.decor().clone();
            *old = value;
        }
        None => {
            document.insert(key, Item::Value(value));
        }
    }
}

/// The file itself, where `path` is a link to it.
fn real(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

fn directory(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// A file beside it, synced, takes its name.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let name = path.file_name().ok_or(ErrorKind::InvalidInput)?.to_string_lossy();
    let directory = directory(path);
    let beside = directory.join(format!(".{name}.{}.new", std::process::id()));
    let written = (|| {
        let mut file = File::create_new(&beside)?;
        if let Ok(old) = fs::metadata(path) {
            file.set_permissions(old.permissions())?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)
    })();
    if written.is_err() {
        // What could not be finished is not left lying there; the first error is what counts.
        let _ = fs::remove_file(&beside);
        return written;
    }
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_probe::Scratch;

    const FILE: &str = "# the shop's broker\ndata_dir = \"/var/lib/lepus\"\nshards = 8   # one per core\n\n\
                        [limits]  # small\nframe_max = \"64KiB\"\n";

    #[test]
    fn everything_else_stays_with_its_comments() {
        let text = with_settings("f", FILE, Some(18), "nodes=!0").unwrap();
        assert_eq!(
            text,
            "# the shop's broker\ndata_dir = \"/var/lib/lepus\"\nshards = 18   # one per core\n\
             placement = \"nodes=!0\"\n\n[limits]  # small\nframe_max = \"64KiB\"\n"
        );
        // The same again changes nothing.
        assert_eq!(with_settings("f", &text, Some(18), "nodes=!0").unwrap(), text);
        let text = with_settings("f", "", None, "auto").unwrap();
        assert_eq!(text, "shards = \"auto\"\nplacement = \"auto\"\n");
        let text = with_settings("f", "[tls]\nverify = \"none\"\n", Some(2), "spread").unwrap();
        assert!(text.find("placement").unwrap() < text.find("[tls]").unwrap(), "{text}");
    }

    #[test]
    fn what_cannot_be_understood_is_refused_with_its_place() {
        let error =
            with_settings("x.toml", "shards = 2\nlisten = = 3\n", None, "auto").unwrap_err();
        assert!(error.starts_with("x.toml:2:10: not valid TOML"), "{error}");
        let error = with_settings("x.toml", "[shards]\na = 1\n", None, "auto").unwrap_err();
        assert!(error.contains("shards is a table"), "{error}");
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_and_keeps_its_rights() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let scratch = Scratch::new("tune");
        let directory = scratch.path().to_owned();
        let (file, link) = (directory.join("lepus.toml"), directory.join("link.toml"));
        fs::write(&file, FILE).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        symlink(&file, &link).unwrap();
        write(&link, Some(3), "auto").unwrap();
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains("shards = 3   # one per core"), "{text}");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        // One that is broken stays as it is.
        fs::write(&file, "a = = 1").unwrap();
        assert!(check(&link).unwrap_err().contains("link.toml:1:5"));
        assert!(write(&link, Some(3), "auto").is_err());
        assert_eq!(fs::read_to_string(&file).unwrap(), "a = = 1");
        let fresh = directory.join("fresh.toml");
        check(&fresh).unwrap();
        write(&fresh, None, "compact").unwrap();
        assert!(fs::read_to_string(&fresh).unwrap().contains("placement = \"compact\""));
        assert!(check(&directory.join("nowhere/x.toml")).unwrap_err().contains("no directory"));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 3);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_directory_that_takes_no_files_is_told_before() {
        let text = check(Path::new("/proc/lepus.toml")).unwrap_err();
        assert!(text.starts_with("/proc/lepus.toml cannot be written: /proc: "), "{text}");
    }
}

//! Why a command ends with another code than 0, and what it says then.

/// The command line is not accepted.
pub const USAGE: u8 = 64;
/// A value is wrong, or names what is not there.
pub const DATA: u8 = 65;
/// There is no such user.
pub const NO_USER: u8 = 67;
/// The broker cannot be reached, refuses, or a check failed.
pub const UNAVAILABLE: u8 = 69;
/// Any other failure.
pub const SOFTWARE: u8 = 70;
/// It took too long.
pub const TIMEOUT: u8 = 75;
/// The configuration is not usable.
pub const CONFIGURATION: u8 = 78;

/// All codes with what they mean, for the documentation.
pub const CODES: [(u8, &str); 8] = [
    (0, "it went well"),
    (
        USAGE,
        "the command line is not accepted; no such queue to delete; the broker is stopped by `stop_app`",
    ),
    (DATA, "a value is wrong, or names a virtual host that is not there; a wrong password"),
    (NO_USER, "no such user"),
    (UNAVAILABLE, "the broker cannot be reached, refuses, or a check failed"),
    (
        SOFTWARE,
        "another failure, such as a user that is there already, or standard output that cannot be written",
    ),
    (TIMEOUT, "it took longer than `--timeout`"),
    (CONFIGURATION, "a configuration file cannot be used"),
];

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The exit code.
    pub code: u8,
    /// What standard error shows.
    pub text: String,
    /// The arguments and the usage are shown below.
    pub with_usage: bool,
}

impl Failure {
    /// A text under the line `Error:`.
    #[must_use]
    pub fn new(code: u8, text: impl AsRef<str>) -> Failure {
        Failure::plain(code, format!("Error:\n{}", text.as_ref()))
    }

    /// A text that stands alone.
    #[must_use]
    pub fn plain(code: u8, text: impl Into<String>) -> Failure {
        Failure { code, text: text.into(), with_usage: false }
    }

    /// What is wrong with the arguments.
    #[must_use]
    pub fn argument(code: u8, text: impl AsRef<str>) -> Failure {
        let text = format!("Error (argument validation): {}", text.as_ref());
        Failure { code, text, with_usage: true }
    }
}

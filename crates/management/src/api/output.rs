//! Where long answers go while they are made.

use super::failure::Failure;

/// Takes the body of an answer 200 in pieces, so that a long list is never held as a whole.
pub trait Output {
    /// Takes the next piece; may wait for whoever reads.
    ///
    /// # Errors
    /// 503 where too many give long answers, or nobody reads any more.
    fn write(&self, text: Vec<u8>) -> Result<(), Failure>;

    /// Takes the body as a whole; nothing else is written then.
    fn write_whole(&self, text: Vec<u8>);

    /// Waits for a place among the few that hold long answers: for an answer that is made as a whole.
    ///
    /// # Errors
    /// 503 where there is none in time.
    fn admit(&self) -> Result<(), Failure>;
}

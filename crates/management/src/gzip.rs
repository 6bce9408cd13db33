//! Answers made shorter for clients that say they can read that (`Accept-Encoding: gzip`): at the fastest level, piece by
//! piece, by the thread that makes the answer.

use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, ETAG};
use axum::http::{HeaderMap, HeaderValue};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;

/// Bytes of an answer below which it is given as it is: it fits a packet or two either way.
pub(crate) const BYTES_MIN: usize = 1024;

/// Whether whoever sent these headers wants an answer in this form: the word `gzip` (or `*`), not with `q=0`.
pub(crate) fn is_wanted(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|line| line.to_str().ok());
    // What stands there by name says more than the star.
    let (mut named, mut other) = (None, None);
    for item in lines.flat_map(|line| line.split(',')) {
        let mut parts = item.split(';').map(str::trim);
        let word = parts.next().unwrap_or_default();
        let weight = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
        let is_refused = weight.is_some_and(|weight| weight.parse() == Ok(0.0_f32));
        if word.eq_ignore_ascii_case("gzip") || word.eq_ignore_ascii_case("x-gzip") {
            named = Some(!is_refused);
        } else if word == "*" {
            other = Some(!is_refused);
        }
    }
    named.or(other).unwrap_or(false)
}

/// Marks an answer whose body is in this form. Its tag becomes a weak one, since the bytes are others than without.
pub(crate) fn mark(headers: &mut HeaderMap) {
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    let strong = headers.get(ETAG).filter(|tag| !tag.as_bytes().starts_with(b"W/"));
    let weak = strong.map(|tag| [b"W/", tag.as_bytes()].concat());
    if let Some(weak) = weak.and_then(|weak| HeaderValue::from_bytes(&weak).ok()) {
        headers.insert(ETAG, weak);
    }
}

/// Text on its way into this form. Holds about 350 KiB beside what it gives.
pub(crate) struct Gzip(GzEncoder<Vec<u8>>);

impl Gzip {
    pub(crate) fn new() -> Gzip {
        Gzip(GzEncoder::new(Vec::new(), Compression::fast()))
    }

    /// Takes the next piece and gives what is ready, which may be nothing yet.
    pub(crate) fn add(&mut self, piece: &[u8]) -> Vec<u8> {
        self.0.write_all(piece).expect("memory takes what is written");
        std::mem::take(self.0.get_mut())
    }

    /// Gives what is left.
    pub(crate) fn end(self) -> Vec<u8> {
        self.0.finish().expect("memory takes what is written")
    }

    /// A whole text in this form.
    pub(crate) fn whole(text: &[u8]) -> Vec<u8> {
        let mut gzip = Gzip::new();
        let mut whole = gzip.add(text);
        whole.extend_from_slice(&gzip.end());
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use std::io::Read;

    fn wants(lines: &[&str]) -> bool {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(ACCEPT_ENCODING, HeaderValue::from_str(line).unwrap());
        }
        is_wanted(&headers)
    }

    #[test]
    fn a_client_gets_only_what_it_reads() {
        let yes = [
            &["gzip"][..],
            &["deflate, GZIP;q=0.5, br"],
            &["x-gzip"],
            &["br", "gzip"],
            &["*"],
            &["*;q=0, gzip"],
        ];
        for lines in yes {
            assert!(wants(lines), "{lines:?}");
        }
        let no = [
            &[][..],
            &[""],
            &["identity"],
            &["br, deflate"],
            &["gzip;q=0"],
            &["gzip; q=0.000"],
            &["*;q=0"],
            &["gzip;q=0, *"],
            &["gzipped"],
        ];
        for lines in no {
            assert!(!wants(lines), "{lines:?}");
        }
    }

    #[test]
    fn pieces_make_the_text_again() {
        let pieces: Vec<Vec<u8>> = (0..50_u32)
            .map(|at| format!("{{\"name\":\"queue {at}\"}},").repeat(999).into())
            .collect();
        let mut gzip = Gzip::new();
        let mut made: Vec<u8> = pieces.iter().flat_map(|piece| gzip.add(piece)).collect();
        assert!(!made.is_empty(), "it gives before the end");
        made.extend(gzip.end());
        let text = pieces.concat();
        assert!(made.len() < text.len() / 10);
        for made in [made, Gzip::whole(&text)] {
            let mut again = Vec::new();
            GzDecoder::new(&*made).read_to_end(&mut again).unwrap();
            assert!(again == text);
        }
    }

    #[test]
    fn the_tag_of_other_bytes_is_a_weak_one() {
        for (tag, expected) in [("\"7\"", "W/\"7\""), ("W/\"7\"", "W/\"7\"")] {
            let mut headers = HeaderMap::new();
            headers.insert(ETAG, HeaderValue::from_str(tag).unwrap());
            mark(&mut headers);
            assert_eq!(
                (&headers[ETAG], &headers[CONTENT_ENCODING]),
                (&HeaderValue::from_static(expected), &HeaderValue::from_static("gzip"))
            );
        }
    }
}

//! Checkpoints as older versions wrote them: one section, with the tables in another order. Version 1
//! does not say what was delivered; neither says how many references the messages of a segment had.

use super::{Checkpoint, relocation, segments, spans};
use crate::varint::Reader;

/// Reads a checkpoint without its checksum.
pub(super) fn read(found: &mut Checkpoint, version: u16, bytes: &[u8]) -> Option<()> {
    let mut reader = Reader(bytes);
    found.header(&mut reader)?;
    found.segments = segments(&mut reader, false)?;
    for _ in 0..reader.varint()? {
        relocation(&mut reader, &mut found.tables.relocations)?;
    }
    found.tables.spans = spans(&mut reader)?;
    found.lanes.begin_section();
    for _ in 0..reader.varint()? {
        found.lanes.load(&mut reader, version > 1)?;
    }
    reader.is_empty().then_some(())
}

//! What branches have in common that stand in the same columns.

use crate::bound::Side;
use crate::form::Form;
use alloc::sync::Arc;

/// Which ends a branch has, whatever their constants are, and how they hang together.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// Sorted.
    pub(crate) sides: Arc<[Side]>,
    /// Without one all ends must hold.
    pub(crate) form: Option<Arc<Form>>,
}

impl Shape {
    /// The shape in which all of these ends must hold.
    #[cfg(test)]
    pub(crate) fn all(sides: &[Side]) -> Shape {
        Shape { sides: sides.into(), form: None }
    }

    /// Number of ends.
    pub(crate) fn len(&self) -> usize {
        self.sides.len()
    }

    /// Bytes that it takes beside its place.
    pub(crate) fn bytes(&self) -> usize {
        let form = self.form.as_ref().map_or(0, |form| size_of::<Form>() + form.bytes());
        size_of_val(&*self.sides) + form
    }
}

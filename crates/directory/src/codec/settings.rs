//! Policies and parameters as bytes.

use super::reader::Reader;
use super::{
    DecodeError, GLOBAL_PARAMETER_CLEARED, GLOBAL_PARAMETER_SET, PARAMETER_CLEARED, PARAMETER_SET,
    POLICY_CLEARED, POLICY_SET, put_name, put_text, put_vhost,
};
use crate::change::Change;
use crate::policy::{ApplyTo, Policy, PolicyScope};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

const OPERATOR: u8 = 1;

/// Appends a change of a policy or a parameter.
pub(super) fn encode(change: &Change, out: &mut Vec<u8>) {
    match change {
        Change::PolicySet { vhost, scope, policy } => {
            out.push(POLICY_SET);
            put_vhost(out, *vhost);
            put_scope(out, *scope);
            put_name(out, policy.name());
            put_text(out, policy.pattern());
            put_name(out, policy.apply_to().name());
            out.extend_from_slice(&policy.priority().to_le_bytes());
            policy.definition().encode(out);
        }
        Change::PolicyCleared { vhost, scope, name } => {
            out.push(POLICY_CLEARED);
            put_vhost(out, *vhost);
            put_scope(out, *scope);
            put_name(out, name);
        }
        Change::ParameterSet { vhost, component, name, value } => {
            out.push(PARAMETER_SET);
            put_vhost(out, *vhost);
            put_name(out, component);
            put_name(out, name);
            put_text(out, value);
        }
        Change::ParameterCleared { vhost, component, name } => {
            out.push(PARAMETER_CLEARED);
            put_vhost(out, *vhost);
            put_name(out, component);
            put_name(out, name);
        }
        Change::GlobalParameterSet { name, value } => {
            out.push(GLOBAL_PARAMETER_SET);
            put_name(out, name);
            put_text(out, value);
        }
        Change::GlobalParameterCleared { name } => {
            out.push(GLOBAL_PARAMETER_CLEARED);
            put_name(out, name);
        }
        _ => unreachable!("no policy and no parameter"),
    }
}

/// Reads a change of such a kind.
pub(super) fn decode(tag: u8, reader: &mut Reader<'_>) -> Result<Change, DecodeError> {
    Ok(match tag {
        POLICY_SET => {
            let (vhost, scope) = (reader.vhost()?, scope(reader)?);
            let (name, pattern) = (reader.name()?, reader.text()?);
            let apply_to = ApplyTo::from_name(reader.name()?);
            let apply_to = apply_to.ok_or(DecodeError::Field("kind of object"))?;
            let priority = reader.i64()?;
            let definition = reader.table()?.to_bytes();
            let policy = Policy::recovered(name, pattern, apply_to, priority, definition);
            Change::PolicySet { vhost, scope, policy: Arc::new(policy) }
        }
        POLICY_CLEARED => Change::PolicyCleared {
            vhost: reader.vhost()?,
            scope: scope(reader)?,
            name: reader.name()?.into(),
        },
        PARAMETER_SET | PARAMETER_CLEARED => {
            let vhost = reader.vhost()?;
            let component: Box<str> = reader.name()?.into();
            let name = reader.name()?.into();
            if tag == PARAMETER_SET {
                Change::ParameterSet { vhost, component, name, value: reader.text()?.into() }
            } else {
                Change::ParameterCleared { vhost, component, name }
            }
        }
        GLOBAL_PARAMETER_SET => {
            Change::GlobalParameterSet { name: reader.name()?.into(), value: reader.text()?.into() }
        }
        GLOBAL_PARAMETER_CLEARED => Change::GlobalParameterCleared { name: reader.name()?.into() },
        tag => return Err(DecodeError::Tag(tag)),
    })
}

fn put_scope(out: &mut Vec<u8>, scope: PolicyScope) {
    out.push(match scope {
        PolicyScope::User => 0,
        PolicyScope::Operator => OPERATOR,
    });
}

fn scope(reader: &mut Reader<'_>) -> Result<PolicyScope, DecodeError> {
    Ok(match reader.flags(OPERATOR, "flag")? {
        0 => PolicyScope::User,
        _ => PolicyScope::Operator,
    })
}

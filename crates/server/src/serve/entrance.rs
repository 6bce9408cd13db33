//! Where the management API is reached: its listeners, which are there before the broker serves.

use super::{Address, bind_all, local_addresses};
use crate::config::Config;
use crate::log::Log;
use lepus_management::api::Api;
use lepus_management::http::{Door, TlsSource};
use lepus_management::web;
use lepus_shard::tls::Identity;
use std::sync::{Arc, OnceLock};

/// The listeners, and what they wait for.
pub(super) struct Entrance {
    /// Where they listen.
    pub(super) addresses: Vec<Address>,
    /// To be set once the broker serves.
    pub(super) api: Arc<OnceLock<Arc<Api>>>,
    /// To be set once the certificate is read, if there is one.
    pub(super) identity: Arc<OnceLock<Arc<Identity>>>,
}

impl Entrance {
    /// Listens, and says that the broker starts to whoever asks.
    ///
    /// # Errors
    /// In words, where an address cannot be used.
    pub(super) fn open(config: &Config, log: &Log) -> Result<Entrance, String> {
        let plain = bind_all(&config.management_listen, "--management-listen", log)?;
        let wanted = match config.tls_certificate {
            Some(_) => config.management_tls_listen.as_slice(),
            None => &[],
        };
        let secure = bind_all(wanted, "--management-tls-listen", log)?;
        let named = |name, listeners: &_| {
            local_addresses(listeners).into_iter().map(move |address| (name, address))
        };
        let mut addresses: Vec<Address> = named("management", &plain).collect();
        addresses.extend(named("management-tls", &secure));
        let (api, identity) = (Arc::default(), Arc::<OnceLock<Arc<Identity>>>::default());
        let own = Arc::clone(&identity);
        let tls: TlsSource = Arc::new(move || own.get().map(|identity| identity.current()));
        let mut doors: Vec<Door> = plain.into_iter().map(|listener| (listener, None)).collect();
        doors.extend(secure.into_iter().map(|listener| (listener, Some(Arc::clone(&tls)))));
        if !doors.is_empty() {
            web::start(doors, Arc::clone(&api), settings(config))
                .map_err(|error| format!("cannot start the management thread: {error}"))?;
        }
        Ok(Entrance { addresses, api, identity })
    }
}

fn settings(config: &Config) -> web::Settings {
    let origins = config.management_allowed_origins.split(',').map(str::trim);
    web::Settings {
        path_prefix: config.management_path_prefix.trim_end_matches('/').to_owned(),
        body_bytes_max: usize::try_from(config.management_body_bytes_max).unwrap_or(usize::MAX),
        allowed_origins: origins.filter(|origin| !origin.is_empty()).map(str::to_owned).collect(),
        hsts_policy: config.management_hsts_policy.clone(),
    }
}

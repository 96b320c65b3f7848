//! What the library offers: providers, and what is opened with each.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::net::IpAddr;
use std::ptr;

use crate::Error;
use crate::library::{self, Library};
use crate::sys::{
    self, FI_CONTEXT, FI_CONTEXT2, FI_EP_MSG, FI_MR_ALLOCATED, FI_MR_LOCAL, FI_MR_PROV_KEY,
    FI_MR_VIRT_ADDR, FI_MSG, FI_NUMERICHOST, FI_ORDER_SAS, FI_PROGRESS_MANUAL, FI_RECV,
    FI_RM_ENABLED, FI_SEND, FI_SOURCE, FI_THREAD_SAFE,
};

/// Providers that are no faster than TCP itself, as they are made of it or of UDP.
const NO_BETTER: [&str; 4] = ["tcp", "sockets", "net", "udp"];

/// A provider of the library that has connected endpoints.
#[derive(Clone, Debug)]
pub struct Provider {
    pub(crate) library: &'static Library,
    name: String,
    /// All that is sent and received is to be copied through memory that the provider was shown,
    /// also where it does not ask for that.
    pub(crate) register: bool,
}

impl Provider {
    /// The provider of this name, or the one that the library puts first, for connections from and
    /// to an address of this machine.
    ///
    /// # Errors
    /// When there is none.
    pub fn find(name: Option<&str>, here: IpAddr) -> Result<Provider, Error> {
        let library = library::load()?;
        let all = names(library, here)?;
        let found = match name {
            Some(name) => all.iter().find(|found| *found == name).ok_or_else(|| {
                let all = all.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
                let others = if all.is_empty() { "it has none".into() } else { all };
                let others = format!("those at {here}: {others}");
                Error::NoProvider { name: name.into(), others }
            })?,
            None => all.first().ok_or(Error::NoProviders)?,
        };
        Ok(Provider { library, name: found.clone(), register: false })
    }

    /// One that is better than TCP, if there is one.
    pub fn better_than_tcp(here: IpAddr) -> Option<Provider> {
        let library = library::load().ok()?;
        let all = names(library, here).ok()?;
        let better = all.into_iter().find(|name| !NO_BETTER.contains(&name.as_str()))?;
        Some(Provider { library, name: better, register: false })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// What a connection from or to this address is made with.
    pub(crate) fn info(&self, here: IpAddr) -> Result<Info, Error> {
        let name = CString::new(self.name.as_str()).map_err(|_| Error::Name(self.name.clone()))?;
        ask(self.library, Some(&name), here)
    }
}

/// Names of the providers with connected endpoints at this address, best first.
fn names(library: &'static Library, here: IpAddr) -> Result<Vec<String>, Error> {
    let info = match ask(library, None, here) {
        Ok(info) => info,
        Err(Error::Call { code: libc::ENODATA, .. }) => return Ok(Vec::new()),
        Err(other) => return Err(other),
    };
    let (mut all, mut seen, mut at) = (Vec::new(), BTreeSet::new(), info.first);
    // SAFETY: a list as the library made it, which lasts as long as `info`.
    while let Some(one) = unsafe { at.as_ref() } {
        // SAFETY: as above.
        let name = unsafe { CStr::from_ptr((*one.fabric_attr).prov_name) };
        let name = name.to_string_lossy().into_owned();
        if seen.insert(name.clone()) {
            all.push(name);
        }
        at = one.next;
    }
    Ok(all)
}

/// Asks for connected endpoints with a stream's order, from this address.
fn ask(library: &'static Library, name: Option<&CStr>, here: IpAddr) -> Result<Info, Error> {
    let hints = Info::empty(library)?;
    // SAFETY: an empty answer has all its parts.
    unsafe {
        let top = &mut *hints.first;
        top.caps = FI_MSG | FI_SEND | FI_RECV;
        top.mode = FI_CONTEXT | FI_CONTEXT2;
        (*top.ep_attr).kind = FI_EP_MSG;
        (*top.tx_attr).msg_order = FI_ORDER_SAS;
        (*top.rx_attr).msg_order = FI_ORDER_SAS;
        let domain = &mut *top.domain_attr;
        domain.threading = FI_THREAD_SAFE;
        domain.control_progress = FI_PROGRESS_MANUAL;
        domain.data_progress = FI_PROGRESS_MANUAL;
        domain.resource_mgmt = FI_RM_ENABLED;
        domain.mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
        if let Some(name) = name {
            // The library frees it with the rest.
            (*top.fabric_attr).prov_name = libc::strdup(name.as_ptr());
        }
    }
    let node = CString::new(here.to_string()).unwrap_or_default();
    let (flags, mut first) = (FI_SOURCE | FI_NUMERICHOST, ptr::null_mut());
    // SAFETY: an address as text, hints that last, and a place for the answer.
    let returned = unsafe {
        let (node, service) = (node.as_ptr(), ptr::null());
        (library.getinfo)(sys::VERSION, node, service, flags, hints.first, &mut first)
    };
    library.check("fi_getinfo", returned)?;
    Ok(Info { library, first })
}

/// A list as the library makes them.
pub(crate) struct Info {
    library: &'static Library,
    pub first: *mut sys::Info,
}

impl Info {
    fn empty(library: &'static Library) -> Result<Info, Error> {
        // SAFETY: null asks for an empty one.
        let first = unsafe { (library.dupinfo)(ptr::null()) };
        if first.is_null() {
            return Err(library.error("fi_allocinfo", libc::ENOMEM));
        }
        Ok(Info { library, first })
    }

    /// Takes one that came with an event.
    pub fn own(library: &'static Library, first: *mut sys::Info) -> Info {
        Info { library, first }
    }
}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: it came from the library and is nobody else's.
        unsafe { (self.library.freeinfo)(self.first) };
    }
}

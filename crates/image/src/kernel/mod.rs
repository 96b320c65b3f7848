//! What the kernel offers, in thin layers that know nothing of images: ptrace, `/proc`,
//! userfaultfd, namespaces, file handles, and the like.

pub(crate) mod background;
pub(crate) mod capabilities;
pub(crate) mod clone;
pub(crate) mod cpuid;
pub(crate) mod deadlines;
pub(crate) mod descriptor_moves;
pub(crate) mod executable;
pub(crate) mod file_handle;
pub(crate) mod find_file;
pub(crate) mod free_pids;
pub(crate) mod heap;
pub(crate) mod holder;
pub(crate) mod inode;
pub(crate) mod interrupted_calls;
pub(crate) mod leases;
pub(crate) mod left_processes;
pub(crate) mod memory;
pub(crate) mod missing_pages;
pub(crate) mod namespace_init;
pub(crate) mod pagemap;
pub(crate) mod pid_namespace;
pub(crate) mod procfs;
pub(crate) mod ptrace;
pub(crate) mod remote_calls;
pub(crate) mod remote_descriptors;
pub(crate) mod restorer_area;
pub(crate) mod script;
pub(crate) mod smaps;
pub(crate) mod sockdiag;
pub(crate) mod starting;
pub(crate) mod stops;
pub(crate) mod thread_reaper;
pub(crate) mod time;
pub(crate) mod userfaultfd;
pub(crate) mod written_pages;

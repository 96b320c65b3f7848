//! Which content a process is likely to need first: what its registers point to, and what it wrote
//! last, which is what an incremental image holds itself.

use crate::PAGE_BYTES;
use crate::restore::lazy::filling::block_at;
use eyrie_image_format::read::blocks::Wanted;
use eyrie_image_format::read::image::Image;
use eyrie_image_format::state::object_of;

/// How far above the stack pointer the stack is taken to be in use.
const STACK_PAGES: u64 = 16;
/// Most blocks of what was written last.
const MAX_LATEST_BLOCKS: usize = 32;

/// Wanted blocks, the most urgent first.
pub fn blocks(image: &Image) -> Vec<usize> {
    let mut all: Vec<usize> = Vec::new();
    let mut add = |address: u64| {
        if let Some(block) = block_at(image, address)
            && !all.contains(&block)
        {
            all.push(block);
        }
    };
    for thread in &image.state.threads {
        let stack = eyrie_image_format::bytes::registers::words_to_regs(&thread.regs).rsp;
        (0..STACK_PAGES).for_each(|page| add(stack.wrapping_add(page * PAGE_BYTES)));
        thread.regs.iter().for_each(|&word| add(word));
        [thread.altstack[0], thread.robust[0], thread.tid_address].into_iter().for_each(&mut add);
        thread.rseq.iter().for_each(|rseq| add(rseq.addr));
    }
    if !image.ancestors.is_empty() {
        // Shared objects are filled before it runs.
        let private =
            |w: &Wanted| image.wants.pieces_of(w).iter().any(|p| object_of(p.address).is_none());
        let own = image.wants.blocks.iter().enumerate();
        let own = own.filter(|(_, w)| w.part == 0 && private(w));
        let latest: Vec<usize> = own.map(|(i, _)| i).filter(|i| !all.contains(i)).collect();
        all.extend(latest.into_iter().take(MAX_LATEST_BLOCKS));
    }
    all
}

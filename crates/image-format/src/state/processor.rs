//! What an image holds of the processor it was taken on. Part of the file format of the `STATE`
//! section (`docs/formats/image.md`): a change here is a change of version.

use crate::bytes::encoding::wire_struct;

wire_struct! {
    /// Where the saved registers of one feature lie in the XSAVE area.
    pub struct Component {
        /// Its number, as a bit of XCR0.
        pub number: u32,
        /// Offset in the area.
        pub offset: u32,
        /// Length.
        pub bytes: u32,
    }
}

wire_struct! {
    /// What a program could see of the processor.
    pub struct Processor {
        /// Names of its features, as in `/proc/cpuinfo`.
        pub features: Vec<Vec<u8>>,
        /// Layout of the XSAVE areas of the threads, beyond the first 576 bytes.
        pub components: Vec<Component>,
    }
}

/// The part of the area whose layout is fixed.
pub const FIXED_BYTES: usize = 576;

/// Highest number of a state.
pub const MAX_COMPONENT: u32 = 62;

//! Eight numbers at once, for the loops that decide the emulator's speed: left to themselves, compilers make vectors of
//! them along the wrong axis. On x86-64 these are vector registers, of as many bits as the processor has.

/// A kind of vectors.
pub(super) trait Vectors {
    /// Eight binary32 numbers.
    type Floats: Copy;
    /// Eight 32-bit integers.
    type Ints: Copy;
    /// Eight 16-bit integers.
    type Shorts: Copy;

    fn floats(values: [f32; 8]) -> Self::Floats;
    fn splat_float(value: f32) -> Self::Floats;
    fn times(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// Without their fractions. Magnitudes must be below 2^31, else the result is any number.
    fn cut(a: Self::Floats) -> Self::Ints;

    fn splat_int(value: i32) -> Self::Ints;
    fn add(a: Self::Ints, b: Self::Ints) -> Self::Ints;
    fn get_ints(a: Self::Ints) -> [i32; 8];

    fn shorts(values: [i16; 8]) -> Self::Shorts;
    fn splat_short(value: i16) -> Self::Shorts;
    fn add_shorts(a: Self::Shorts, b: Self::Shorts) -> Self::Shorts;
    fn max(a: Self::Shorts, b: Self::Shorts) -> Self::Shorts;
    fn get_shorts(a: Self::Shorts) -> [i16; 8];
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{Avx2, Sse2};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;
    use std::mem::transmute;

    use super::Vectors;

    /// Runs an expression of vector instructions.
    macro_rules! vector {
        ($expression:expr) => {
            // SAFETY: every x86-64 processor has SSE2. `Avx2` is used only where the processor has been asked for AVX2.
            // Vectors and arrays of the same size hold plain numbers.
            unsafe { $expression }
        };
    }

    /// What all kinds do alike: eight 16-bit integers in 128 bits.
    macro_rules! shorts {
        () => {
            type Shorts = __m128i;

            #[inline(always)]
            fn shorts(values: [i16; 8]) -> __m128i {
                vector!(transmute::<[i16; 8], __m128i>(values))
            }

            #[inline(always)]
            fn splat_short(value: i16) -> __m128i {
                vector!(_mm_set1_epi16(value))
            }

            #[inline(always)]
            fn add_shorts(a: __m128i, b: __m128i) -> __m128i {
                vector!(_mm_add_epi16(a, b))
            }

            #[inline(always)]
            fn max(a: __m128i, b: __m128i) -> __m128i {
                vector!(_mm_max_epi16(a, b))
            }

            #[inline(always)]
            fn get_shorts(a: __m128i) -> [i16; 8] {
                vector!(transmute::<__m128i, [i16; 8]>(a))
            }
        };
    }

    /// 128-bit registers, which every such processor has.
    pub(in crate::num) struct Sse2;

    impl Vectors for Sse2 {
        type Floats = [__m128; 2];
        type Ints = [__m128i; 2];

        #[inline(always)]
        fn floats(values: [f32; 8]) -> [__m128; 2] {
            vector!(transmute::<[f32; 8], [__m128; 2]>(values))
        }

        #[inline(always)]
        fn splat_float(value: f32) -> [__m128; 2] {
            [vector!(_mm_set1_ps(value)); 2]
        }

        #[inline(always)]
        fn times([a, b]: [__m128; 2], [c, d]: [__m128; 2]) -> [__m128; 2] {
            vector!([_mm_mul_ps(a, c), _mm_mul_ps(b, d)])
        }

        #[inline(always)]
        fn cut([a, b]: [__m128; 2]) -> [__m128i; 2] {
            vector!([_mm_cvttps_epi32(a), _mm_cvttps_epi32(b)])
        }

        #[inline(always)]
        fn splat_int(value: i32) -> [__m128i; 2] {
            [vector!(_mm_set1_epi32(value)); 2]
        }

        #[inline(always)]
        fn add([a, b]: [__m128i; 2], [c, d]: [__m128i; 2]) -> [__m128i; 2] {
            vector!([_mm_add_epi32(a, c), _mm_add_epi32(b, d)])
        }

        #[inline(always)]
        fn get_ints(a: [__m128i; 2]) -> [i32; 8] {
            vector!(transmute::<[__m128i; 2], [i32; 8]>(a))
        }

        shorts!();
    }

    /// 256-bit registers.
    pub(in crate::num) struct Avx2;

    impl Vectors for Avx2 {
        type Floats = __m256;
        type Ints = __m256i;

        #[inline(always)]
        fn floats(values: [f32; 8]) -> __m256 {
            vector!(transmute::<[f32; 8], __m256>(values))
        }

        #[inline(always)]
        fn splat_float(value: f32) -> __m256 {
            vector!(_mm256_set1_ps(value))
        }

        #[inline(always)]
        fn times(a: __m256, b: __m256) -> __m256 {
            vector!(_mm256_mul_ps(a, b))
        }

        #[inline(always)]
        fn cut(a: __m256) -> __m256i {
            vector!(_mm256_cvttps_epi32(a))
        }

        #[inline(always)]
        fn splat_int(value: i32) -> __m256i {
            vector!(_mm256_set1_epi32(value))
        }

        #[inline(always)]
        fn add(a: __m256i, b: __m256i) -> __m256i {
            vector!(_mm256_add_epi32(a, b))
        }

        #[inline(always)]
        fn get_ints(a: __m256i) -> [i32; 8] {
            vector!(transmute::<__m256i, [i32; 8]>(a))
        }

        shorts!();
    }
}

#[cfg(any(test, not(target_arch = "x86_64")))]
pub(super) use portable::Portable;

#[cfg(any(test, not(target_arch = "x86_64")))]
mod portable {
    use std::array::from_fn;

    use super::Vectors;

    /// Arrays, for whatever processor.
    pub(in crate::num) struct Portable;

    impl Vectors for Portable {
        type Floats = [f32; 8];
        type Ints = [i32; 8];
        type Shorts = [i16; 8];

        fn floats(values: [f32; 8]) -> [f32; 8] {
            values
        }

        fn splat_float(value: f32) -> [f32; 8] {
            [value; 8]
        }

        fn times(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
            from_fn(|n| a[n] * b[n])
        }

        fn cut(a: [f32; 8]) -> [i32; 8] {
            a.map(|value| value as i32)
        }

        fn splat_int(value: i32) -> [i32; 8] {
            [value; 8]
        }

        fn add(a: [i32; 8], b: [i32; 8]) -> [i32; 8] {
            from_fn(|n| a[n].wrapping_add(b[n]))
        }

        fn get_ints(a: [i32; 8]) -> [i32; 8] {
            a
        }

        fn shorts(values: [i16; 8]) -> [i16; 8] {
            values
        }

        fn splat_short(value: i16) -> [i16; 8] {
            [value; 8]
        }

        fn add_shorts(a: [i16; 8], b: [i16; 8]) -> [i16; 8] {
            from_fn(|n| a[n].wrapping_add(b[n]))
        }

        fn max(a: [i16; 8], b: [i16; 8]) -> [i16; 8] {
            from_fn(|n| a[n].max(b[n]))
        }

        fn get_shorts(a: [i16; 8]) -> [i16; 8] {
            a
        }
    }
}

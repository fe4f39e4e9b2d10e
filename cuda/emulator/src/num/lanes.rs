//! Eight numbers at once, for the loops that decide the emulator's speed: left to themselves, compilers make vectors of
//! them along the wrong axis. On x86-64 these are the vector registers that every such processor has.

#[cfg(target_arch = "x86_64")]
pub(super) use sse2::{Floats, Ints, Shorts};

#[cfg(not(target_arch = "x86_64"))]
pub(super) use portable::{Floats, Ints, Shorts};

#[cfg(target_arch = "x86_64")]
mod sse2 {
    use std::arch::x86_64::*;

    /// Runs an expression of SSE2's functions.
    macro_rules! sse2 {
        ($expression:expr) => {
            // SAFETY: every x86-64 processor has SSE2, and the functions used here ask for nothing else.
            unsafe { $expression }
        };
    }

    /// Eight binary32 numbers.
    #[derive(Clone, Copy)]
    pub(in crate::num) struct Floats(__m128, __m128);

    impl Floats {
        #[inline(always)]
        pub(in crate::num) fn new([a, b, c, d, e, f, g, h]: [f32; 8]) -> Self {
            sse2!(Floats(_mm_setr_ps(a, b, c, d), _mm_setr_ps(e, f, g, h)))
        }

        #[inline(always)]
        pub(in crate::num) fn splat(value: f32) -> Self {
            sse2!(Floats(_mm_set1_ps(value), _mm_set1_ps(value)))
        }

        #[inline(always)]
        pub(in crate::num) fn times(self, other: Self) -> Self {
            sse2!(Floats(_mm_mul_ps(self.0, other.0), _mm_mul_ps(self.1, other.1)))
        }

        /// Without their fractions. Magnitudes must be below 2^31, else the result is any number.
        #[inline(always)]
        pub(in crate::num) fn cut(self) -> Ints {
            sse2!(Ints(_mm_cvttps_epi32(self.0), _mm_cvttps_epi32(self.1)))
        }
    }

    /// Eight 32-bit integers.
    #[derive(Clone, Copy)]
    pub(in crate::num) struct Ints(__m128i, __m128i);

    impl Ints {
        #[inline(always)]
        pub(in crate::num) fn splat(value: i32) -> Self {
            sse2!(Ints(_mm_set1_epi32(value), _mm_set1_epi32(value)))
        }

        #[inline(always)]
        pub(in crate::num) fn plus(self, other: Self) -> Self {
            sse2!(Ints(_mm_add_epi32(self.0, other.0), _mm_add_epi32(self.1, other.1)))
        }

        #[inline(always)]
        pub(in crate::num) fn get(self) -> [i32; 8] {
            let [a, b] = [self.0, self.1].map(|half| {
                sse2!([
                    _mm_cvtsi128_si64(half),
                    _mm_cvtsi128_si64(_mm_unpackhi_epi64(half, half))
                ])
                .map(|pair| [pair as i32, (pair >> 32) as i32])
            });
            [a[0][0], a[0][1], a[1][0], a[1][1], b[0][0], b[0][1], b[1][0], b[1][1]]
        }
    }

    /// Eight 16-bit integers.
    #[derive(Clone, Copy)]
    pub(in crate::num) struct Shorts(__m128i);

    impl Shorts {
        #[inline(always)]
        pub(in crate::num) fn new([a, b, c, d, e, f, g, h]: [i16; 8]) -> Self {
            sse2!(Shorts(_mm_setr_epi16(a, b, c, d, e, f, g, h)))
        }

        #[inline(always)]
        pub(in crate::num) fn splat(value: i16) -> Self {
            sse2!(Shorts(_mm_set1_epi16(value)))
        }

        #[inline(always)]
        pub(in crate::num) fn plus(self, other: Self) -> Self {
            sse2!(Shorts(_mm_add_epi16(self.0, other.0)))
        }

        #[inline(always)]
        pub(in crate::num) fn max(self, other: Self) -> Self {
            sse2!(Shorts(_mm_max_epi16(self.0, other.0)))
        }

        #[inline(always)]
        pub(in crate::num) fn get(self) -> [i16; 8] {
            let halves = sse2!([
                _mm_cvtsi128_si64(self.0),
                _mm_cvtsi128_si64(_mm_unpackhi_epi64(self.0, self.0))
            ]);
            std::array::from_fn(|n| (halves[n / 4] >> (n % 4 * 16)) as i16)
        }
    }
}

#[cfg(any(test, not(target_arch = "x86_64")))]
mod portable {
    use std::array::from_fn;

    /// Eight binary32 numbers.
    #[derive(Clone, Copy)]
    pub(in crate::num) struct Floats([f32; 8]);

    impl Floats {
        pub(in crate::num) fn new(values: [f32; 8]) -> Self {
            Floats(values)
        }

        pub(in crate::num) fn splat(value: f32) -> Self {
            Floats([value; 8])
        }

        pub(in crate::num) fn times(self, other: Self) -> Self {
            Floats(from_fn(|n| self.0[n] * other.0[n]))
        }

        /// Without their fractions. Magnitudes must be below 2^31, else the result is any number.
        pub(in crate::num) fn cut(self) -> Ints {
            Ints(self.0.map(|value| value as i32))
        }
    }

    /// Eight 32-bit integers.
    #[derive(Clone, Copy)]
    pub(in crate::num) struct Ints([i32; 8]);

    impl Ints {
        pub(in crate::num) fn splat(value: i32) -> Self {
            Ints([value; 8])
        }

        pub(in crate::num) fn plus(self, other: Self) -> Self {
            Ints(from_fn(|n| self.0[n].wrapping_add(other.0[n])))
        }

        pub(in crate::num) fn get(self) -> [i32; 8] {
            self.0
        }
    }

    /// Eight 16-bit integers.
    #[derive(Clone, Copy)]
    pub(in crate::num) struct Shorts([i16; 8]);

    impl Shorts {
        pub(in crate::num) fn new(values: [i16; 8]) -> Self {
            Shorts(values)
        }

        pub(in crate::num) fn splat(value: i16) -> Self {
            Shorts([value; 8])
        }

        pub(in crate::num) fn plus(self, other: Self) -> Self {
            Shorts(from_fn(|n| self.0[n].wrapping_add(other.0[n])))
        }

        pub(in crate::num) fn max(self, other: Self) -> Self {
            Shorts(from_fn(|n| self.0[n].max(other.0[n])))
        }

        pub(in crate::num) fn get(self) -> [i16; 8] {
            self.0
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::portable;

    proptest! {
        /// Both kinds of lanes compute the same.
        #[test]
        fn vectors_compute_what_arrays_do(a: [i16; 8], b: [i16; 8], x in prop::array::uniform8(-30000f32..30000.), y: i16) {
            let [wide, plain] = [
                super::Shorts::new(a).plus(super::Shorts::splat(y)).max(super::Shorts::new(b)).get(),
                portable::Shorts::new(a).plus(portable::Shorts::splat(y)).max(portable::Shorts::new(b)).get(),
            ];
            prop_assert_eq!(wide, plain);
            let scale = f32::from(y);
            let [wide, plain] = [
                super::Floats::new(x).times(super::Floats::splat(scale)).cut().plus(super::Ints::splat(y.into())).get(),
                portable::Floats::new(x).times(portable::Floats::splat(scale)).cut().plus(portable::Ints::splat(y.into())).get(),
            ];
            prop_assert_eq!(wide, plain);
        }
    }
}

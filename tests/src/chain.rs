//! Projections in a chain: each reads what the one before it has written.

use crate::{Device, POISON, Values, bits, check, poisoned, shape};
use hopper_proj::{Buffer, Projection, Result, Shape, bf16};

/// One layer: its weights here and there.
#[derive(Debug)]
pub struct Layer {
    shape: Shape,
    projection: Projection,
    weights: Vec<bf16>,
}

/// Random layers from each of these sides to the next, prepared in one way or another.
pub fn layers(
    values: &mut Values,
    sides: &[usize],
    prepare: impl Fn(&[bf16], Shape) -> Result<Projection>,
) -> Vec<Layer> {
    let layer = |side: &[usize]| {
        let (shape, weights) = (shape(side[1], side[0]), values.bf16(side[1] * side[0]));
        Layer {
            shape,
            projection: prepare(&weights, shape).expect("weights go to the device"),
            weights,
        }
    };
    sides.windows(2).map(layer).collect()
}

/// Layers, and the values between them on the device.
#[derive(Debug)]
pub struct Chain<'a> {
    layers: &'a [Layer],
    m: usize,
    values: Vec<Buffer<bf16>>,
}

impl<'a> Chain<'a> {
    /// A chain for `m` tokens; all of its values are unwritten.
    pub fn new(layers: &'a [Layer], m: usize) -> Self {
        let first = layers.first().map_or(0, |layer| layer.shape.k());
        let sides = [first].into_iter().chain(layers.iter().map(|layer| layer.shape.n()));
        Chain {
            layers,
            m,
            values: sides.map(|side| poisoned(m * side)).collect(),
        }
    }

    /// Writes new values for the first layer.
    pub fn refresh(&mut self, device: &Device, values: &mut Values) -> Vec<bf16> {
        let x = values.bf16(self.values[0].len());
        let written = device.engine.write(&mut self.values[0], &x, &device.stream);
        written.expect("an upload");
        x
    }

    /// Queues all layers, on the device's stream.
    pub fn queue(&mut self, device: &Device) -> Result<()> {
        for (at, layer) in self.layers.iter().enumerate() {
            let [x, y] = self.values.get_disjoint_mut([at, at + 1]).expect("two buffers");
            device
                .engine
                .project(&layer.projection, &*x, self.m, y, &device.stream)?;
        }
        Ok(())
    }

    /// Whether no layer has written its result.
    pub fn is_unwritten(&self, device: &Device) -> bool {
        let untouched = |y| {
            bits(&device.engine.download(y, &device.stream).expect("a download"))
                .iter()
                .all(|&v| v == POISON)
        };
        self.values[1..].iter().all(untouched)
    }

    /// Holds every layer's result against FP64, on the values that it was given.
    pub fn check(&self, device: &Device, x: Vec<bf16>) {
        let mut read = x;
        for (layer, y) in self.layers.iter().zip(&self.values[1..]) {
            let y = device.engine.download(y, &device.stream).expect("a download");
            check(&y, &read, &layer.weights, layer.shape, self.m).unwrap_or_else(|wrong| panic!("{wrong}"));
            read = y;
        }
    }
}

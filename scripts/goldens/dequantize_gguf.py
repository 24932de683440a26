#!/usr/bin/env python3
"""Writes a GGUF file with the same weights in F32, so that llama.cpp computes in f32 instead of rounding activations to 8 bits.

  dequantize_gguf.py IN.gguf OUT.gguf          needs the Python packages gguf and numpy
"""
import sys

import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter, dequantize


def main(source, target):
    reader = GGUFReader(source)
    writer = GGUFWriter(target, reader.fields["general.architecture"].contents())
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        if field.types[0] == GGUFValueType.ARRAY:
            writer.add_array(key, field.contents())
        else:
            writer.add_key_value(key, field.contents(), field.types[0])
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        writer.add_tensor(tensor.name, values.reshape([int(d) for d in reversed(tensor.shape)]))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


main(sys.argv[1], sys.argv[2])

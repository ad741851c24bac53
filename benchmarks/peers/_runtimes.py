"""JAX, ONNX Runtime and OpenVINO: raced where they are installed.

Each is asked as those ask it who know it: what its call has a word for is said by that word, and whatever is the same
in every call is handed over once.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from regard.bench import Causal, Lengths, Peer, UnfairError, Window, processors


@cache
def threads_of_jax():
    """Its client counts the processors that it may use when it is made, here or never."""
    import jax

    jax.devices("cpu")
    return processors()


class Jax(Peer):
    """jax.nn.dot_product_attention, compiled, arrays in the layout that it asks for."""

    name = "JAX"
    needs = ("jax",)

    def why_not(self, problem):
        if problem.threads != 1:
            return "its threads are fixed when it starts: one"
        return "XLA has no product of float16 on the CPU" if problem.dtype == "float16" else ""

    def prepare(self, problem, given):
        UnfairError.unless(problem.threads, threads_of_jax())
        import jax
        import jax.numpy as jnp

        options = {}
        if problem.mask == Causal():
            options["is_causal"] = True
        elif isinstance(problem.mask, Window):
            options["local_window_size"] = (problem.mask.size - 1, 0)
        elif isinstance(problem.mask, Lengths):
            options["key_value_seq_lengths"] = jnp.array(problem.mask.lengths, jnp.int32)
        elif problem.mask is not None:
            options["mask"] = jnp.asarray(problem.spelled_out(problem.mask))
        if problem.bias is not None:
            options["bias"] = jnp.asarray(problem.spelled_out(problem.bias))
        compiled = jax.jit(lambda q, k, v: jax.nn.dot_product_attention(q, k, v, **options))
        q, k, v = (jnp.asarray(np.ascontiguousarray(x.swapaxes(1, 2))) for x in given)
        return lambda: compiled(q, k, v).block_until_ready()

    def array(self, answer):
        return np.asarray(answer).swapaxes(1, 2)


class Onnx(Peer):
    """One node of a model: inputs are bound once, and outputs are written where they were before."""

    needs = ("onnx", "onnxruntime")

    def why_not(self, problem):
        return "not in bfloat16 on the CPU" if problem.dtype == "bfloat16" else ""

    @staticmethod
    def bound(problem, node, feeds, outputs):
        """The call. Outputs are shapes, or the names of inputs that are written over."""
        import onnxruntime
        from onnx import helper

        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads, settings.inter_op_num_threads = problem.threads, 1
        kinds = {name: helper.np_dtype_to_tensor_dtype(x.dtype) for name, x in feeds.items()}
        shapes = {name: feeds[out].shape if isinstance(out, str) else out for name, out in outputs.items()}
        inputs = [helper.make_tensor_value_info(name, kinds[name], x.shape) for name, x in feeds.items()]
        told = [helper.make_tensor_value_info(name, kinds["q"], shape) for name, shape in shapes.items()]
        graph = helper.make_graph([node], "attention", inputs, told)
        # An older one may lack the opset that has lengths.
        domains = [helper.make_opsetid("", 24 if "lengths" in feeds else 23), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=domains, ir_version=10).SerializeToString()
        session = onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
        value, binding = onnxruntime.OrtValue, session.io_binding()
        values = {name: value.ortvalue_from_numpy(x) for name, x in feeds.items()}
        for name, there in values.items():
            binding.bind_ortvalue_input(name, there)
        for name, out in outputs.items():
            new = values.get(out) or value.ortvalue_from_shape_and_type(out, feeds["q"].dtype)
            binding.bind_ortvalue_output(name, new)
            values[name] = new

        def call():
            session.run_with_iobinding(binding)
            return values["out"]

        return call


class OnnxRuntime(Onnx):
    """Its Attention of opset 23; of 24, which is told lengths, where there are any."""

    name = "ONNX Runtime"

    def prepare(self, problem, given):
        from onnx import helper

        feeds = dict(zip("qkv", given, strict=True))
        inputs, causal = list("qkv"), problem.mask == Causal() and problem.bias is None
        if isinstance(problem.mask, Lengths) and problem.bias is None:
            feeds["lengths"] = np.array(problem.mask.lengths)
            inputs += ["", "", "", "lengths"]
        elif not causal and (added := problem.added()) is not None:
            shape = *added.shape[:2], *problem.lengths
            feeds["mask"] = np.ascontiguousarray(np.broadcast_to(added, shape))
            inputs.append("mask")
        node = helper.make_node("Attention", inputs, ["out"], is_causal=int(causal))
        return self.bound(problem, node, feeds, {"out": problem.query})

    def array(self, answer):
        return answer.numpy()


class GroupQuery(Onnx):
    """Its operator for decoders: one query behind a cache, into which it writes the last key and value."""

    name = "ONNX Runtime GroupQueryAttention"

    def why_not(self, problem):
        if problem.lengths[0] != 1 or problem.mask is not None or problem.bias is not None:
            return "not one query"
        return super().why_not(problem)

    def prepare(self, problem, given):
        from onnx import helper

        batch, heads, _, size = problem.query
        keys = problem.lengths[1]
        last = (np.ascontiguousarray(x[:, :, -1]).reshape(batch, 1, -1) for x in (given.k, given.v))
        feeds = {"q": given.q.reshape(batch, 1, heads * size), **dict(zip(("k", "v"), last, strict=True))}
        feeds |= {"keys": given.k.copy(), "values": given.v.copy()}  # it writes into them
        feeds |= {"before": np.full(batch, keys - 1, np.int32), "whole": np.array(keys, np.int32)}
        outputs = {"out": (batch, 1, heads * size), "keys_then": "keys", "values_then": "values"}
        node = helper.make_node(
            "GroupQueryAttention", list(feeds), list(outputs), domain="com.microsoft", num_heads=heads,
            kv_num_heads=problem.key[1],
        )  # fmt: skip
        call = self.bound(problem, node, feeds, outputs)
        return lambda: (call(), problem.query)

    def array(self, answer):
        out, shape = answer
        return out.numpy().reshape(shape)


@cache
def started():
    """OpenVINO with its plugin for the CPU, which counts the processors that it may use when it is loaded."""
    import openvino

    core = openvino.Core()
    core.get_property("CPU", "FULL_DEVICE_NAME")
    return core


class OpenVino(Peer):
    """Its scaled dot product attention of opset 13, in float32."""

    name = "OpenVINO"
    needs = ("openvino",)

    def start(self):
        started()

    def why_not(self, problem):
        if problem.dtype != "float32":
            return f"its arrays of {problem.dtype} are converted in each call"
        return "" if problem.group == 1 else "kv heads are shared"

    def prepare(self, problem, given):
        import openvino
        from openvino import opset13

        causal = problem.mask == Causal() and problem.bias is None
        added = None if causal else problem.added()
        feeds = [*given] if added is None else [*given, added]
        inputs = [opset13.parameter(openvino.Shape(x.shape), openvino.Type.f32) for x in feeds]
        node = opset13.scaled_dot_product_attention(*inputs, causal=causal)
        settings = {"INFERENCE_NUM_THREADS": problem.threads, "INFERENCE_PRECISION_HINT": "f32"}
        compiled = started().compile_model(openvino.Model([node], inputs), "CPU", settings)
        UnfairError.unless(problem.threads, compiled.get_property("INFERENCE_NUM_THREADS"))
        request = compiled.create_infer_request()
        for place, x in enumerate(feeds):
            request.set_input_tensor(place, openvino.Tensor(x))
        return lambda: request.infer(share_outputs=True)[0]

    def array(self, answer):
        return np.array(answer)


RUNTIMES = (Jax(), OnnxRuntime(), GroupQuery(), OpenVino())

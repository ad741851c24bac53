"""JAX, ONNX Runtime and OpenVINO: raced where they are installed."""

from __future__ import annotations

import os

import numpy as np

from regard.bench import Causal, Peer, Window


def added(problem):
    """Mask and bias as one array over the scores: bool, or float with minus infinity; None if the problem is plain."""
    mask = None if problem.mask is None else problem.spelled_out(problem.mask)[None, None]
    if problem.bias is None:
        return mask
    bias = problem.spelled_out(problem.bias)[None]
    return bias if mask is None else np.where(mask, bias, np.float32(-np.inf))


class Jax(Peer):
    """jax.nn.dot_product_attention, compiled, arrays in the layout that it asks for."""

    name = "JAX"
    needs = ("jax",)

    def why_not(self, problem):
        if problem.threads != 1:
            return "its threads are fixed when it starts: one"
        return "XLA has no product of float16 on the CPU" if problem.dtype == "float16" else ""

    def prepare(self, problem, given):
        # Read when JAX makes its client, by the first array.
        os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
        import jax
        import jax.numpy as jnp

        options = {}
        if problem.mask == Causal():
            options["is_causal"] = True
        elif isinstance(problem.mask, Window):
            options["local_window_size"] = (problem.mask.size - 1, 0)
        elif problem.mask is not None:
            options["mask"] = jnp.asarray(problem.spelled_out(problem.mask))[None, None]
        if problem.bias is not None:
            options["bias"] = jnp.asarray(problem.spelled_out(problem.bias))[None]
        compiled = jax.jit(lambda q, k, v: jax.nn.dot_product_attention(q, k, v, **options))
        q, k, v = (jnp.asarray(np.ascontiguousarray(x.swapaxes(1, 2))) for x in given)
        return lambda: compiled(q, k, v).block_until_ready()

    def array(self, answer):
        return np.asarray(answer).swapaxes(1, 2)


class OnnxRuntime(Peer):
    """Its Attention of opset 23."""

    name = "ONNX Runtime"
    needs = ("onnx", "onnxruntime")

    def why_not(self, problem):
        return "not in bfloat16 on the CPU" if problem.dtype == "bfloat16" else ""

    def prepare(self, problem, given):
        import onnxruntime

        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads, settings.inter_op_num_threads = problem.threads, 1
        feeds = dict(zip("qkv", given, strict=True))
        cover = None if problem.mask == Causal() and problem.bias is None else added(problem)
        if cover is not None:
            feeds["mask"] = cover if cover.dtype == bool else cover.astype(given.q.dtype)
        model = self.model(feeds, causal=problem.mask == Causal() and cover is None)
        session = onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
        return lambda: session.run(None, feeds)[0]

    @staticmethod
    def model(feeds, *, causal):
        from onnx import helper

        node = helper.make_node("Attention", list(feeds), ["out"], is_causal=int(causal))
        kinds = {name: helper.np_dtype_to_tensor_dtype(x.dtype) for name, x in feeds.items()}
        inputs = [helper.make_tensor_value_info(name, kinds[name], x.shape) for name, x in feeds.items()]
        output = helper.make_tensor_value_info("out", kinds["q"], feeds["q"].shape)
        graph = helper.make_graph([node], "attention", inputs, [output])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


class OpenVino(Peer):
    """Its scaled dot product attention of opset 13, in float32."""

    name = "OpenVINO"
    needs = ("openvino",)

    def why_not(self, problem):
        if problem.dtype != "float32":
            return f"its arrays of {problem.dtype} are converted in each call"
        return "" if problem.group == 1 else "kv heads are shared"

    def prepare(self, problem, given):
        import openvino
        from openvino import opset13

        feeds = [*given]
        cover = None if problem.mask == Causal() and problem.bias is None else added(problem)
        if cover is not None:
            feeds.append(cover)
        kinds = {np.dtype(np.float32): openvino.Type.f32, np.dtype(bool): openvino.Type.boolean}
        inputs = [opset13.parameter(openvino.Shape(x.shape), kinds[x.dtype]) for x in feeds]
        causal = problem.mask == Causal() and cover is None
        node = opset13.scaled_dot_product_attention(*inputs, causal=causal)
        settings = {"INFERENCE_NUM_THREADS": problem.threads, "INFERENCE_PRECISION_HINT": "f32"}
        compiled = openvino.Core().compile_model(openvino.Model([node], inputs), "CPU", settings)
        request = compiled.create_infer_request()
        return lambda: request.infer(feeds, share_inputs=True, share_outputs=True)[0]

    def array(self, answer):
        return np.array(answer)


RUNTIMES = (Jax(), OnnxRuntime(), OpenVino())

"""What is counted of a compiled program's text."""

from benchmarks.gpu.program import Program, Tensor, products, tensors

TEXT = """
HloModule jit_step, is_scheduled=true

%fused (param_0: bf16[512,1031]) -> f32[512,1031] {
  %param_0 = bf16[512,1031]{1,0} parameter(0)
  %transpose.3 = bf16[1031,512]{1,0} transpose(%param_0), dimensions={1,0}
  ROOT %convert.1 = f32[512,1031]{1,0} convert(%param_0), metadata={op_name="jit(step)/cast"}
}

%body (state: (s32[])) -> (s32[]) {
  %state = (s32[]) parameter(0)
  %inner = f32[7]{0} add(%state, %state)
  ROOT %tuple = (s32[]) tuple(%state)
}

ENTRY %main (weights: f32[512,1031], inputs: bf16[512,1031]) -> (f32[512,1031], bf16[512,1031]) {
  %weights = f32[512,1031]{1,0} parameter(0)
  %inputs = bf16[512,1031]{1,0} parameter(1)
  %loop_fusion = f32[512,1031]{1,0} fusion(%inputs), kind=kLoop, calls=%fused, metadata={op_name="jit(step)/cast"}
  %product = (bf16[512,1031]{1,0}, s8[64]{0}) custom-call(%loop_fusion, %weights), custom_call_target="__cublas$gemm"
  %part = bf16[512,1031]{1,0} get-tuple-element(%product), index=0
  %told = () custom-call(%part), custom_call_target="xla_ffi_python_gpu_callback"
  %loop = (s32[]) while(%told), condition=%condition, body=%body
  ROOT %result = (f32[512,1031]{1,0}, bf16[512,1031]{1,0}) tuple(%loop_fusion, %part)
}
"""
SIZE = 512 * 1031


def test_results_are_read_one_by_one():
    assert tensors("(bf16[2,3]{1,0}, f32[]) ") == (Tensor("bf16", (2, 3)), Tensor("f32", ()))
    assert tensors("pred[7]{0}")[0].bytes == 7 and tensors("bf16[2,3]")[0].bytes == 12


def test_kernels_are_what_runs_and_not_what_is_within_fusions():
    program = Program(TEXT)
    assert program.kinds() == {
        "fusion kLoop": 1,
        "custom-call __cublas$gemm": 1,
        "custom-call xla_ffi_python_gpu_callback": 1,
        "add": 1,
    }
    sizes = {kernel.name: size for kernel, size in program.kernels}
    assert sizes["loop_fusion"] == SIZE * (2 + 4) and sizes["product"] == SIZE * (2 + 4 + 4) + 64
    assert program.operations(["transpose", "gather"]) == {"transpose": 1, "gather": 0}
    assert program.on_the_host() == ["custom-call xla_ffi_python_gpu_callback"]


def test_large_tensors_are_told_by_type_and_shape():
    program = Program(TEXT)
    assert program.large("f32") == {"f32[512,1031]": 1} and program.large("f32", [(512, 1031)]) == {}
    assert program.logits(512, 1031) == {"f32": 1, "bf16": 1} and program.logits(512, 1033) == {}
    assert program.written()["f32"] == SIZE * 4 + 28
    (heaviest,) = program.heaviest(1)
    assert heaviest["kind"] == "custom-call __cublas$gemm" and heaviest["writes"] == "bf16[512,1031], s8[64]"


def test_products_are_told_by_what_they_multiply():
    pairs = [("2x3xbf16", "3x5xbf16"), ("7xf32", "7x2xbf16"), ("2x3xbf16", "3x7xbf16")]
    line = "%{} = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<{}>, tensor<{}>) -> tensor<f32>"
    text = "\n".join(line.format(number, *pair) for number, pair in enumerate(pairs))
    assert products(text) == {"bf16 × bf16": 2, "f32 × bf16": 1}

"""The only access to numba for the CPU: every name of numba's and llvmlite's that cupar uses there.

Most of them are private. Files that compile import them from here, so that a numba which lacks one is a
`VersionError` before anything is compiled.
"""

from __future__ import annotations

from typing import Any, Final

# Where each name is: a module, or a module and a name in it.
_PLACES: Final = {
    "AOTCodeLibrary": "numba.core.codegen:AOTCodeLibrary",
    "AbstractTemplate": "numba.core.typing.templates:AbstractTemplate",
    "AttributeTemplate": "numba.core.typing.templates:AttributeTemplate",
    "CPU": "numba.core.target_extension:CPU",
    "CPUContext": "numba.core.cpu:CPUContext",
    "CPUDispatcher": "numba.core.registry:CPUDispatcher",
    "CPUTargetOptions": "numba.core.cpu:CPUTargetOptions",
    "Compiler": "numba.core.compiler:Compiler",
    "ConfigStack": "numba.core.targetconfig:ConfigStack",
    "Flags": "numba.core.compiler:Flags",
    "JITCPUCodegen": "numba.core.codegen:JITCPUCodegen",
    "Linkage": "llvmlite.binding:Linkage",
    "NamedTupleAttribute": "numba.core.typing.collections:NamedTupleAttribute",
    "NativeValue": "numba.extending:NativeValue",
    "NumbaError": "numba.core.errors:NumbaError",
    "PICKLE_BUFSZ_IDX": "numba.core.callconv:PICKLE_BUFSZ_IDX",
    "PICKLE_BUF_IDX": "numba.core.callconv:PICKLE_BUF_IDX",
    "Registry": "numba.core.imputils:Registry",
    "Signature": "numba.core.typing.templates:Signature",
    "TargetDescriptor": "numba.core.descriptors:TargetDescriptor",
    "as_dtype": "numba.np.numpy_support:as_dtype",
    "box": "numba.extending:box",
    "cgutils": "numba.core.cgutils",
    "config": "numba.core.config",
    "cpu_target": "numba.core.registry:cpu_target",
    "data_manager": "numba.core.datamodel:default_manager",
    "dispatcher_registry": "numba.core.target_extension:dispatcher_registry",
    "errors": "numba.core.errors",
    "from_dtype": "numba.np.numpy_support:from_dtype",
    "get_or_insert_function": "numba.core.cgutils:get_or_insert_function",
    "global_compiler_lock": "numba.core.compiler_lock:global_compiler_lock",
    "infer_getattr": "numba.core.typing.templates:infer_getattr",
    "infer_global": "numba.core.typing.templates:infer_global",
    "intrinsic": "numba.extending:intrinsic",
    "ir": "llvmlite.ir",
    "jit_registry": "numba.core.target_extension:jit_registry",
    "leading_zeros": "numba.cpython.unsafe.numbers:leading_zeros",
    "llvm": "llvmlite.binding",
    "lower_builtin": "numba.core.imputils:lower_builtin",
    "lower_constant": "numba.core.imputils:lower_constant",
    "lower_getattr": "numba.core.imputils:lower_getattr",
    "lower_getattr_generic": "numba.core.imputils:lower_getattr_generic",
    "make_array": "numba.np.arrayobj:make_array",
    "make_attribute_wrapper": "numba.extending:make_attribute_wrapper",
    "models": "numba.extending:models",
    "njit": "numba:njit",
    "overload": "numba.extending:overload",
    "overload_attribute": "numba.extending:overload_attribute",
    "overload_method": "numba.extending:overload_method",
    "populate_array": "numba.np.arrayobj:populate_array",
    "register_default": "numba.core.datamodel:register_default",
    "register_jitable": "numba.extending:register_jitable",
    "register_model": "numba.extending:register_model",
    "rewrite_registry": "numba.core.rewrites:rewrite_registry",
    "signature": "numba.core.typing.templates:signature",
    "target_override": "numba.core.target_extension:target_override",
    "target_registry": "numba.core.target_extension:target_registry",
    "tuple_setitem": "numba.cpython.unsafe.tuple:tuple_setitem",
    "typeinfer": "numba.core.typeinfer",
    "typeof": "numba:typeof",
    "typeof_impl": "numba.core.typing.typeof:typeof_impl",
    "types": "numba.core.types",
    "typing": "numba.core.typing",
    "unbox": "numba.extending:unbox",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ._base.versions import looked_up

    return looked_up(_PLACES[name], "numba")

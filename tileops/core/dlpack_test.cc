// SPDX-License-Identifier: Apache-2.0
#include "tileops/core/dlpack.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <vector>

#include "tileops/core/error_testing.h"

namespace tileops::dlpack {
namespace {

static_assert(sizeof(DLTensor) == 48 && offsetof(DLTensor, byte_offset) == 40);
static_assert(sizeof(DLManagedTensor) == 64 && offsetof(DLManagedTensor, deleter) == 56);
static_assert(sizeof(DLManagedTensorVersioned) == 80 &&
              offsetof(DLManagedTensorVersioned, dl_tensor) == 32);

/// A producer's float32[2, 3], contiguous, that counts the calls of its deleter.
template <class Managed>
struct Producer {
  alignas(64) std::array<float, 8> data = {0, 1, 2, 3, 4, 5, 6, 7};
  std::vector<int64_t> shape = {2, 3};
  std::vector<int64_t> strides = {3, 1};
  int num_deleted = 0;
  Managed managed{};

  Producer() {
    managed.dl_tensor = {data.data(),  {kCpu, 0},      2, {kFloat, 32, 1},
                         shape.data(), strides.data(), 0};
    managed.manager_ctx = this;
    managed.deleter = [](Managed* self) {
      ++static_cast<Producer*>(self->manager_ctx)->num_deleted;
    };
    if constexpr (requires { managed.version; }) managed.version = {kMajorVersion, 7};
  }
  DLTensor& tensor() { return managed.dl_tensor; }
  std::string error() {
    const std::string text = error_of([&] { import_managed(&managed); });
    EXPECT_EQ(num_deleted, 0) << "the failed import was consumed";
    return text;
  }
};

template <class Managed>
class DLPackImport : public ::testing::Test {
 protected:
  Producer<Managed> p;
};
using Forms = ::testing::Types<DLManagedTensor, DLManagedTensorVersioned>;
TYPED_TEST_SUITE(DLPackImport, Forms);

TYPED_TEST(DLPackImport, SharesTheDataAndDeletesOnce) {
  {
    const Tensor tensor = import_managed(&this->p.managed);
    EXPECT_EQ(to_string(tensor), "float32[2, 3] on cpu");
    EXPECT_EQ(tensor.data(), this->p.data.data());
    const Tensor view = tensor.select(0, 1);
    EXPECT_EQ(view.at({2}), 5.0);
    EXPECT_EQ(this->p.num_deleted, 0);
  }
  EXPECT_EQ(this->p.num_deleted, 1);
}

TYPED_TEST(DLPackImport, NullStridesAreContiguous) {
  this->p.tensor().strides = nullptr;
  EXPECT_EQ(import_managed(&this->p.managed).strides(), Strides({3, 1}));
}

TYPED_TEST(DLPackImport, StridesAndOffsetCount) {
  this->p.strides = {1, 2};
  this->p.tensor().byte_offset = 8;
  const Tensor tensor = import_managed(&this->p.managed);
  EXPECT_EQ(tensor.at({0, 0}), 2.0);
  EXPECT_EQ(tensor.at({1, 2}), 7.0);
}

TYPED_TEST(DLPackImport, ADeleterMayBeNull) {
  this->p.managed.deleter = nullptr;
  EXPECT_EQ(import_managed(&this->p.managed).at({1, 0}), 3.0);
}

TYPED_TEST(DLPackImport, NoElementsNeedNoData) {
  this->p.shape = {0, 3};
  this->p.tensor().data = nullptr;
  this->p.tensor().byte_offset = 3;
  EXPECT_EQ(to_string(import_managed(&this->p.managed)), "float32[0, 3] on cpu");
  EXPECT_EQ(this->p.num_deleted, 1);
}

TYPED_TEST(DLPackImport, AScalarNeedsNoShape) {
  this->p.tensor().ndim = 0;
  this->p.tensor().shape = nullptr;
  this->p.tensor().strides = nullptr;
  EXPECT_EQ(import_managed(&this->p.managed).at({}), 0.0);
}

TYPED_TEST(DLPackImport, EveryDeviceServed) {
  DLTensor& t = this->p.tensor();
  const std::vector<std::pair<DLDevice, std::string>> cases = {{{kCpu, 0}, "cpu"},
                                                               {{kCudaHost, 1}, "cpu"},
                                                               {{kCuda, 1}, "cuda:1"},
                                                               {{kCudaManaged, 2}, "cuda:2"}};
  for (const auto& [device, name] : cases) {
    t.device = device;
    EXPECT_EQ(to_string(import_managed(&this->p.managed).device()), name);
  }
}

TYPED_TEST(DLPackImport, FaultsAreNamedAndNotConsumed) {
  using Managed = TypeParam;
  const auto fault = [](auto&& spoil) {
    Producer<Managed> p;
    spoil(p, p.tensor());
    return p.error();
  };
  EXPECT_EQ(fault([](auto&, DLTensor& t) { t.data = nullptr; }),
            "ValueError: dlpack import: null data for float32[2, 3]");
  EXPECT_EQ(fault([](auto&, DLTensor& t) { t.shape = nullptr; }),
            "ValueError: dlpack import: null shape for 2 dimensions");
  EXPECT_EQ(fault([](auto&, DLTensor& t) { t.ndim = -1; }),
            "ValueError: dlpack import: ndim must be at least 0, got -1");
  EXPECT_EQ(fault([](auto& p, DLTensor&) { p.shape[1] = -3; }),
            "ValueError: dlpack import: sizes must be at least 0, got [2, -3]");
  EXPECT_EQ(fault([](auto& p, DLTensor&) { p.strides[0] = -3; }),
            "ValueError: dlpack import: strides must be at least 0, got [-3, 1]");
  EXPECT_EQ(fault([](auto&, DLTensor& t) { t.data = reinterpret_cast<void*>(0x1001); }),
            "ValueError: dlpack import: data at 0x1001 is not aligned to the 4 bytes of float32");
  EXPECT_EQ(fault([](auto&, DLTensor& t) {
              t.data = reinterpret_cast<void*>(0x1000);
              t.byte_offset = 2;
            }),
            "ValueError: dlpack import: data at 0x1002 is not aligned to the 4 bytes of float32");
  EXPECT_EQ(fault([](auto&, DLTensor& t) { t.byte_offset = UINT64_MAX; }),
            "ValueError: dlpack import: byte_offset 18446744073709551615 reaches beyond the "
            "address space");
  EXPECT_EQ(fault([](auto&, DLTensor& t) { t.dtype.lanes = 4; }),
            "TypeError: dlpack import: lanes must be 1, got 4");
  EXPECT_EQ(fault([](auto&, DLTensor& t) {
              t.dtype = {5, 64, 1};
            }),
            "TypeError: dlpack import: there is no dtype of type code 5 with 64 bits");
  EXPECT_EQ(fault([](auto&, DLTensor& t) {
              t.dtype = {kUInt, 32, 1};
            }),
            "TypeError: dlpack import: there is no dtype of type code 1 with 32 bits");
  EXPECT_EQ(fault([](auto&, DLTensor& t) {
              t.device = {10, 0};
            }),
            "ValueError: dlpack import: device type 10 is not served; it must be 1 (CPU), 2 "
            "(CUDA), 3 (CUDA host) or 13 (CUDA managed)");
  EXPECT_EQ(fault([](auto&, DLTensor& t) {
              t.device = {kCuda, -1};
            }),
            "ValueError: dlpack import: the CUDA device's index must be at least 0, got -1");
  EXPECT_EQ(fault([](auto& p, DLTensor& t) {
              p.shape.assign(9, 1);
              t.shape = p.shape.data();
              t.ndim = 9;
            }),
            "ValueError: a tensor has at most 8 dimensions, got 9");
  EXPECT_EQ(fault([](auto& p, DLTensor&) {
              p.shape = {INT64_MAX, 2};
            }),
            "ValueError: shape [9223372036854775807, 2] has more elements than int64 can count");
  EXPECT_EQ(fault([](auto& p, DLTensor&) { p.strides[0] = INT64_MAX; }),
            "ValueError: shape [2, 3] with strides [9223372036854775807, 1] reaches further than "
            "int64 can count");
}

TEST(DLPackImportVersions, TheMajorVersionMustBeOurs) {
  Producer<DLManagedTensorVersioned> p;
  p.managed.version = {2, 0};
  p.managed.dl_tensor = {};
  EXPECT_EQ(p.error(),
            "ValueError: dlpack import: version 2.0 is not served; the major version must be 1");
}

TEST(DLPackImportVersions, ReadOnlyTensorsServeAsInputs) {
  Producer<DLManagedTensorVersioned> p;
  p.managed.flags = kFlagReadOnly | kFlagIsCopied;
  EXPECT_TRUE(import_managed(&p.managed).defined());
}

TEST(DLPackImportVersions, NullIsRefused) {
  const std::string text = "ValueError: dlpack import: null managed tensor";
  EXPECT_EQ(error_of([] { import_managed(static_cast<DLManagedTensor*>(nullptr)); }), text);
  EXPECT_EQ(error_of([] { import_managed(static_cast<DLManagedTensorVersioned*>(nullptr)); }),
            text);
}

TEST(DLPackExport, EveryDTypeComesBackTheSameView) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    const Tensor tensor = Tensor::empty({3, 4}, dtype).transpose(0, 1).narrow(0, 1, 2);
    const Tensor back = import_managed(export_managed_versioned(tensor));
    EXPECT_EQ(to_string(back), to_string(tensor));
    EXPECT_EQ(back.data(), tensor.data());
  }
}

TEST(DLPackExport, KeepsTheStorageUntilItsDeleterRuns) {
  std::weak_ptr<Storage> watch;
  DLManagedTensor* managed = nullptr;
  {
    const Tensor tensor = Tensor::from_values({2}, DType::kI32, std::vector<double>{4, 9});
    watch = tensor.storage();
    managed = export_managed(tensor);
  }
  EXPECT_EQ(static_cast<int32_t*>(managed->dl_tensor.data)[1], 9);
  EXPECT_EQ(managed->dl_tensor.strides[0], 1);
  managed->deleter(managed);
  EXPECT_TRUE(watch.expired());
}

TEST(DLPackExport, EmptyAndScalarTensors) {
  for (const Shape& shape : {Shape({}), Shape({0}), Shape({0, 3})}) {
    const Tensor tensor = Tensor::empty(shape, DType::kF16);
    EXPECT_EQ(to_string(import_managed(export_managed(tensor))), to_string(tensor));
  }
}

TEST(DLPackExport, StatesItsVersion) {
  DLManagedTensorVersioned* managed = export_managed_versioned(Tensor::empty({1}, DType::kE4M3));
  EXPECT_EQ(managed->version.major, 1u);
  EXPECT_EQ(managed->flags, 0u);
  EXPECT_EQ(managed->dl_tensor.dtype.code, kFloat8E4M3Fn);
  managed->deleter(managed);
}

TEST(DLPackExport, RefusesWhatCannotBeShared) {
  EXPECT_EQ(error_of([] { export_managed(Tensor()); }),
            "ValueError: dlpack export: the tensor is absent");
  EXPECT_EQ(
      error_of([] { export_managed_versioned(Tensor::empty({2}, DType::kF32, kMetaDevice)); }),
      "ValueError: dlpack export: a meta tensor has no data to share, got float32[2] on meta");
  EXPECT_EQ(error_of([] { export_managed(Tensor::empty({2}, DType::kE5M2)); }),
            "TypeError: dlpack export: unversioned DLPack has no float8_e5m2; ask for the "
            "versioned form");
}

}  // namespace
}  // namespace tileops::dlpack

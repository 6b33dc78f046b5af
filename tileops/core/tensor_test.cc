// SPDX-License-Identifier: Apache-2.0
#include "tileops/core/tensor.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tileops/core/error_testing.h"
#include "tileops/core/tensor_refs.h"

namespace tileops {
namespace {

constexpr Device kCuda{DeviceType::kCUDA, 0};

/// 0, 1, 2, … in row-major order.
Tensor iota(const Shape& shape, DType dtype = DType::kF32) {
  std::vector<double> values(static_cast<size_t>(num_elements(shape)));
  std::iota(values.begin(), values.end(), 0.0);
  return Tensor::from_values(shape, dtype, values);
}

std::vector<double> values_of(const Tensor& tensor) {
  const Tensor wide = tensor.to(DType::kF64);
  return {wide.data_as<double>(), wide.data_as<double>() + wide.num_elements()};
}

TEST(Tensor, IsAbsentByDefault) {
  const Tensor absent;
  EXPECT_FALSE(absent.defined());
  EXPECT_EQ(to_string(absent), "absent");
  EXPECT_EQ(absent.num_elements(), 0);
  EXPECT_FALSE(absent.overlaps(absent));
  EXPECT_EQ(error_of([&] { absent.size(0); }), "ValueError: size: the tensor is absent");
  EXPECT_EQ(error_of([&] { absent.narrow(0, 0, 0); }), "ValueError: narrow: the tensor is absent");
  EXPECT_EQ(error_of([&] { absent.reshape({}); }), "ValueError: reshape: the tensor is absent");
  EXPECT_EQ(error_of([&] { absent.as_strided({}, {}, 0); }),
            "ValueError: as_strided: the tensor is absent");
  EXPECT_EQ(error_of([&] { absent.contiguous(); }), "ValueError: contiguous: the tensor is absent");
  EXPECT_EQ(error_of([&] { absent.to(DType::kF32); }), "ValueError: to: the tensor is absent");
  EXPECT_EQ(error_of([&] { absent.at({}); }), "ValueError: at: the tensor is absent");
  EXPECT_EQ(error_of([&] { copy_elements(absent, absent); }),
            "ValueError: copy_elements: a tensor is absent");
}

TEST(Tensor, KnowsItsFacts) {
  const Tensor tensor = iota({2, 3});
  EXPECT_EQ(tensor.rank(), 2);
  EXPECT_EQ(tensor.size(-1), 3);
  EXPECT_EQ(tensor.stride(0), 3);
  EXPECT_EQ(tensor.num_elements(), 6);
  EXPECT_EQ(tensor.at({1, 2}), 5.0);
  EXPECT_EQ(to_string(tensor), "float32[2, 3] on cpu");
  EXPECT_EQ(to_string(tensor.transpose(0, 1)), "float32[3, 2] strides [1, 3] on cpu");
  EXPECT_EQ(error_of([&] { tensor.size(2); }),
            "ValueError: size: there is no dimension 2 in float32[2, 3] on cpu");
  EXPECT_EQ(error_of([&] { tensor.stride(-3); }),
            "ValueError: stride: there is no dimension -3 in float32[2, 3] on cpu");
  EXPECT_EQ(error_of([&] {
              tensor.at({1, INT64_MAX});
            }),
            "ValueError: at: there is no element [1, 9223372036854775807] in float32[2, 3] on cpu");
  EXPECT_EQ(error_of([&] { tensor.at({1}); }),
            "ValueError: at: there is no element [1] in float32[2, 3] on cpu");
}

TEST(Tensor, AScalarHasOneElement) {
  const Tensor scalar = Tensor::from_values({}, DType::kBF16, std::vector<double>{2.5});
  EXPECT_EQ(scalar.num_elements(), 1);
  EXPECT_EQ(scalar.at({}), 2.5);
  EXPECT_EQ(scalar.reshape({1, 1}).at({0, 0}), 2.5);
  EXPECT_EQ(scalar.to(DType::kI32).at({}), 2.0);
}

TEST(Tensor, NoElementsNeedNoData) {
  const Tensor none = Tensor::empty({0, 7}, DType::kF32);
  EXPECT_TRUE(none.defined());
  EXPECT_EQ(none.data(), nullptr);
  EXPECT_TRUE(none.is_contiguous());
  EXPECT_FALSE(none.overlaps(none));
  EXPECT_TRUE(none.is_same_view(none));
  EXPECT_EQ(none.transpose(0, 1).shape(), Shape({7, 0}));
  EXPECT_EQ(none.reshape({3, 0, 2}).shape(), Shape({3, 0, 2}));
  EXPECT_EQ(none.narrow(1, 3, 4).shape(), Shape({0, 4}));
  EXPECT_EQ(none.select(1, 6).shape(), Shape({0}));
  EXPECT_EQ(none.to(DType::kI64).shape(), Shape({0, 7}));
  EXPECT_EQ(Tensor::from_blob(nullptr, {0}, {1}, DType::kF32, kCpuDevice, nullptr).data(), nullptr);
}

TEST(Tensor, RefusesWhatCannotBeCounted) {
  EXPECT_EQ(error_of([] { Tensor::empty({-1}, DType::kF32); }),
            "ValueError: sizes must be at least 0, got shape [-1]");
  EXPECT_EQ(error_of([] { Tensor::empty({INT64_MAX}, DType::kI16, kMetaDevice); }),
            "ValueError: int16[9223372036854775807] takes more bytes than int64 can count");
  EXPECT_EQ(error_of([] { Tensor::from_values({2}, DType::kF32, {}); }),
            "ValueError: from_values: shape [2] needs 2 values, got 0");
}

TEST(Tensor, BlobsAreViewsThatKeepTheirOwner) {
  auto owner = std::make_shared<std::vector<float>>(std::vector<float>{0, 1, 2, 3, 4, 5});
  std::weak_ptr<std::vector<float>> watch = owner;
  Tensor column = Tensor::from_blob(owner->data(), {3}, {2}, DType::kF32, kCpuDevice, owner);
  owner.reset();
  Tensor last = column.narrow(0, 2, 1);
  column = {};
  EXPECT_EQ(last.at({0}), 4.0);
  EXPECT_FALSE(watch.expired());
  last = {};
  EXPECT_TRUE(watch.expired());
}

TEST(Tensor, BlobsAreChecked) {
  float data[4] = {};
  const auto blob = [&](void* at, const Shape& shape, const Strides& strides) {
    return error_of(
        [&] { Tensor::from_blob(at, shape, strides, DType::kF32, kCpuDevice, nullptr); });
  };
  EXPECT_EQ(blob(data, {2, 2}, {1}), "ValueError: shape [2, 2] needs 2 strides, got [1]");
  EXPECT_EQ(blob(data, {2}, {-1}), "ValueError: strides must be at least 0, got [-1]");
  EXPECT_EQ(blob(data, {-2}, {1}), "ValueError: sizes must be at least 0, got shape [-2]");
  EXPECT_EQ(blob(nullptr, {2}, {1}), "ValueError: from_blob: null data for float32[2]");
  EXPECT_EQ(blob(data, {2}, {INT64_MAX / 4}),
            "ValueError: float32[2] takes more bytes than int64 can count");
  EXPECT_EQ(blob(reinterpret_cast<void*>(0x1002), {2}, {1}),
            "ValueError: from_blob: data at 0x1002 is not aligned to the 4 bytes of float32");
  EXPECT_EQ(blob(reinterpret_cast<void*>(UINTPTR_MAX - 7), {3}, {1}),
            "ValueError: from_blob: 12 bytes from 0xfffffffffffffff8 on reach beyond the address "
            "space");
}

TEST(Tensor, NarrowAndSelectShareTheStorage) {
  const Tensor tensor = iota({3, 4});
  const Tensor middle = tensor.narrow(-1, 1, 2);
  EXPECT_EQ(values_of(middle), (std::vector<double>{1, 2, 5, 6, 9, 10}));
  EXPECT_EQ(middle.storage(), tensor.storage());
  EXPECT_EQ(values_of(tensor.select(0, 2)), (std::vector<double>{8, 9, 10, 11}));
  EXPECT_EQ(values_of(middle.select(1, 1)), (std::vector<double>{2, 6, 10}));
  EXPECT_EQ(tensor.narrow(0, 3, 0).num_elements(), 0);
  EXPECT_EQ(error_of([&] { tensor.narrow(0, 2, 2); }),
            "ValueError: narrow: 2 elements from 2 on are not within dimension 0 of float32[3, 4] "
            "on cpu");
  EXPECT_NE(error_of([&] { tensor.narrow(0, 1, INT64_MAX); }), "no error");
  EXPECT_NE(error_of([&] { tensor.narrow(0, -1, 1); }), "no error");
  EXPECT_EQ(error_of([&] { tensor.select(1, 4); }),
            "ValueError: select: there is no index 4 in dimension 1 of float32[3, 4] on cpu");
}

TEST(Tensor, ReshapesAsAViewOrRefuses) {
  const Tensor tensor = iota({2, 3, 4});
  EXPECT_EQ(tensor.reshape({6, 4}).at({5, 3}), 23.0);
  EXPECT_EQ(tensor.reshape({4, 1, 6}).strides(), Strides({6, 6, 1}));
  const Tensor rows = tensor.narrow(2, 0, 2);
  EXPECT_EQ(values_of(rows.reshape({6, 2})), values_of(rows));
  EXPECT_EQ(values_of(rows.reshape({3, 2, 1, 2})), values_of(rows));
  EXPECT_EQ(error_of([&] { rows.reshape({12}); }),
            "ValueError: reshape: float32[2, 3, 2] strides [12, 4, 1] on cpu cannot be viewed as "
            "[12] without a copy; make it contiguous first");
  EXPECT_EQ(rows.contiguous().reshape({12}).at({11}), 21.0);
  EXPECT_EQ(error_of([&] { tensor.reshape({5}); }),
            "ValueError: reshape: float32[2, 3, 4] on cpu does not have the 5 elements of [5]");
  const Tensor expanded = tensor.as_strided({2, 3, 4}, {0, 0, 1}, 0);
  EXPECT_EQ(values_of(expanded.reshape({6, 4})), values_of(expanded));
}

TEST(Tensor, AsStridedStaysWithinTheStorage) {
  const Tensor tensor = iota({4});
  EXPECT_EQ(values_of(tensor.as_strided({2, 2}, {1, 1}, 1)), (std::vector<double>{1, 2, 2, 3}));
  EXPECT_EQ(values_of(tensor.narrow(0, 1, 3).as_strided({2}, {2}, 0)), (std::vector<double>{1, 3}));
  EXPECT_EQ(error_of([&] { tensor.as_strided({2}, {3}, 1); }),
            "ValueError: as_strided: [2] with strides [3] from element 1 on reaches beyond the 4 "
            "elements that the storage has from there");
  EXPECT_NE(error_of([&] { tensor.as_strided({1}, {1}, -1); }), "no error");
  EXPECT_NE(error_of([&] { tensor.as_strided({1}, {1}, INT64_MAX); }), "no error");
  EXPECT_EQ(tensor.as_strided({0}, {1}, 4).num_elements(), 0);
}

TEST(Tensor, ContiguousCopiesOnlyWhatIsNot) {
  const Tensor tensor = iota({3, 5}, DType::kI64);
  EXPECT_TRUE(tensor.contiguous().is_same_view(tensor));
  const Tensor flipped = tensor.transpose(0, 1).contiguous();
  EXPECT_TRUE(flipped.is_contiguous());
  EXPECT_EQ(flipped.at({4, 2}), 14.0);
  EXPECT_FALSE(flipped.overlaps(tensor));
  EXPECT_TRUE(iota({1, 5}).transpose(0, 1).is_contiguous());
}

TEST(Tensor, ConvertsToAnotherDType) {
  const std::vector<double> values = {-1.5, 0, 3.75, 300};
  const Tensor tensor = Tensor::from_values({4}, DType::kF64, values);
  EXPECT_EQ(values_of(tensor.to(DType::kI8)), (std::vector<double>{-1, 0, 3, 127}));
  EXPECT_EQ(values_of(tensor.to(DType::kBool)), (std::vector<double>{1, 0, 1, 1}));
  EXPECT_EQ(values_of(tensor.to(DType::kE4M3)), (std::vector<double>{-1.5, 0, 3.75, 288}));
}

TEST(Tensor, CopiesExactlyWithinADType) {
  const Tensor source = Tensor::empty({2, 2}, DType::kI64);
  for (int i = 0; i < 4; ++i) source.data_as<int64_t>()[i] = INT64_MAX - i;
  const Tensor destination = Tensor::empty({2, 2}, DType::kI64);
  copy_elements(source.transpose(0, 1), destination);
  EXPECT_EQ(destination.data_as<int64_t>()[1], INT64_MAX - 2);
  EXPECT_EQ(error_of([&] { copy_elements(source, iota({4})); }),
            "ValueError: copy_elements: shapes differ: int64[2, 2] on cpu into float32[4] on cpu");
}

TEST(Tensor, TheStrideOfASingleElementIsNeverTaken) {
  double data = 2.5;
  const Tensor tensor = Tensor::from_blob(&data, {1, 1}, {INT64_MAX, INT64_MAX / 2}, DType::kF64,
                                          kCpuDevice, nullptr);
  EXPECT_TRUE(tensor.is_contiguous());
  EXPECT_EQ(values_of(tensor), std::vector<double>{2.5});
  EXPECT_EQ(tensor.to(DType::kF32).at({0, 0}), 2.5);
  EXPECT_EQ(tensor.reshape({}).at({}), 2.5);
  EXPECT_TRUE(tensor.overlaps(tensor));
}

TEST(Tensor, OverlapIsByBytesTouched) {
  const Tensor tensor = iota({4, 6});
  EXPECT_TRUE(tensor.overlaps(tensor));
  EXPECT_FALSE(tensor.narrow(0, 0, 2).overlaps(tensor.narrow(0, 2, 2)));
  EXPECT_TRUE(tensor.narrow(0, 0, 3).overlaps(tensor.narrow(0, 2, 2)));
  EXPECT_TRUE(tensor.narrow(0, 2, 2).overlaps(tensor.narrow(0, 3, 1)));
  EXPECT_FALSE(tensor.overlaps(iota({4, 6})));
  const Tensor borrowed =
      Tensor::from_blob(tensor.data(), {24}, {1}, DType::kF32, kCpuDevice, nullptr);
  EXPECT_TRUE(borrowed.overlaps(tensor.select(1, 5)));
  const auto borrowed_from = [&](int64_t element) {
    return Tensor::from_blob(tensor.data_as<float>() + element, {8}, {1}, DType::kF32, kCpuDevice,
                             nullptr);
  };
  EXPECT_TRUE(borrowed_from(23).overlaps(tensor));
  EXPECT_TRUE(tensor.overlaps(borrowed_from(23)));
  EXPECT_FALSE(borrowed_from(23).overlaps(tensor.narrow(0, 0, 3)));
  EXPECT_FALSE(borrowed_from(24).overlaps(tensor));
  EXPECT_FALSE(tensor.overlaps(borrowed_from(24)));
  EXPECT_FALSE(tensor.narrow(0, 1, 0).overlaps(tensor));
}

TEST(Tensor, SameViewMeansEveryFact) {
  const Tensor tensor = iota({2, 2});
  const Tensor copy = tensor;
  EXPECT_TRUE(copy.is_same_view(tensor));
  EXPECT_FALSE(tensor.transpose(0, 1).is_same_view(tensor));
  EXPECT_FALSE(tensor.select(0, 0).is_same_view(tensor.select(0, 1)));
  EXPECT_TRUE(Tensor().is_same_view(Tensor()));
}

TEST(TensorRefs, ViewAnArrayOrPointers) {
  const std::vector<Tensor> array = {iota({2}), Tensor(), iota({3})};
  const Tensor* pointers[] = {&array[2], &array[0]};
  EXPECT_TRUE(TensorRefs().empty());
  const TensorRefs of_array = array, of_pointers = pointers;
  ASSERT_EQ(of_array.size(), 3U);
  ASSERT_EQ(of_pointers.size(), 2U);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(&of_array[i], &array[i]);
  EXPECT_EQ(&of_pointers[0], &array[2]);
  EXPECT_EQ(&of_pointers[1], &array[0]);
  EXPECT_EQ(array[0].storage().use_count(), 1) << "nothing is copied";
}

TEST(MetaTensor, HasFactsAndNoStorage) {
  const Tensor meta = Tensor::empty({int64_t{1} << 40, 8}, DType::kE4M3, kMetaDevice);
  EXPECT_EQ(meta.data(), nullptr);
  EXPECT_EQ(to_string(meta), "float8_e4m3[1099511627776, 8] on meta");
  const Tensor flipped = meta.transpose(0, 1);
  EXPECT_EQ(flipped.contiguous().strides(), Strides({int64_t{1} << 40, 1}));
  EXPECT_EQ(flipped.contiguous().device(), kMetaDevice);
  EXPECT_EQ(error_of([&] { meta.to(DType::kF32); }),
            "ValueError: to: the tensor must be on the cpu, got float8_e4m3[1099511627776, 8] on "
            "meta");
  EXPECT_NE(error_of([&] { meta.at({0, 0}); }), "no error");
  EXPECT_NE(error_of([&] { copy_elements(meta, meta); }), "no error");
}

TEST(MetaTensor, OverlapAndIdentityFollowTheStorage) {
  const Tensor meta = Tensor::empty({4, 8}, DType::kF32, kMetaDevice);
  EXPECT_TRUE(meta.overlaps(meta.select(0, 3)));
  EXPECT_FALSE(meta.select(0, 2).overlaps(meta.select(0, 3)));
  EXPECT_FALSE(meta.select(0, 2).is_same_view(meta.select(0, 3)));
  EXPECT_FALSE(meta.overlaps(Tensor::empty({4, 8}, DType::kF32, kMetaDevice)));
  const Tensor blob = Tensor::from_blob(nullptr, {4}, {2}, DType::kF32, kMetaDevice, nullptr);
  EXPECT_EQ(blob.as_strided({7}, {1}, 0).num_elements(), 7);
  EXPECT_NE(error_of([&] { blob.as_strided({8}, {1}, 0); }), "no error");
}

TEST(CudaTensor, IsNotReadOnTheHost) {
  const Tensor tensor = Tensor::from_blob(reinterpret_cast<void*>(0x1000), {2, 2}, {1, 2},
                                          DType::kF32, kCuda, nullptr);
  EXPECT_EQ(error_of([&] {
              tensor.at({0, 0});
            }),
            "ValueError: at: the tensor must be on the cpu, got float32[2, 2] strides [1, 2] on "
            "cuda:0");
  EXPECT_NE(error_of([&] { tensor.contiguous(); }), "no error");
  EXPECT_TRUE(tensor.transpose(0, 1).contiguous().is_contiguous());
}

}  // namespace
}  // namespace tileops

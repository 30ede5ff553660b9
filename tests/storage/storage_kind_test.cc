// Which kind of storage a mount lies on, told from made-up tables of a kernel; and what follows.
#include "server/storage/storage_kind.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "server/storage/mounts.h"
#include "tests/storage/temp_folder.h"

namespace feedwater::server {
namespace {

// A /sys with a disk sda that has a partition, an NVMe drive, and a virtual disk.
class MadeUpSys : public ::testing::Test {
 protected:
  MadeUpSys() {
    Device("sda", "8:0", "1");
    std::filesystem::create_directories(folder_ / "devices/sda/sda1");
    Link("8:1", "../../devices/sda/sda1");
    Device("nvme0n1", "259:0", "0");
    Device("vda", "253:0", "1");
  }
  void Device(const std::string& name, const std::string& number, const std::string& rotational) {
    folder_.Write("devices/" + name + "/queue/rotational", rotational + "\n");
    folder_.Write("devices/" + name + "/queue/read_ahead_kb", "128\n");
    folder_.Write("devices/" + name + "/queue/max_sectors_kb", "1280\n");
    Link(number, "../../devices/" + name);
  }
  void Link(const std::string& number, const std::string& to) {
    std::filesystem::create_directories(folder_ / "dev/block");
    std::filesystem::create_symlink(to, folder_ / ("dev/block/" + number));
  }
  Storage On(const std::string& type, uint32_t major, uint32_t minor) {
    return StorageOn({type, "source", major, minor}, folder_.path());
  }

  TempFolder folder_;
};

TEST_F(MadeUpSys, TellsDisksFromDrives) {
  EXPECT_EQ(On("ext4", 8, 0).kind, StorageKind::kRotational);
  EXPECT_EQ(On("xfs", 259, 0).kind, StorageKind::kFlash);
  EXPECT_EQ(On("xfs", 259, 0).device, "nvme0n1");
  EXPECT_EQ(On("ext4", 8, 0).ahead_bytes, 1280 << 10);
}

TEST_F(MadeUpSys, APartitionHasTheQueueOfItsDisk) {
  const Storage storage = On("ext4", 8, 1);
  EXPECT_EQ(storage.kind, StorageKind::kRotational);
  EXPECT_EQ(storage.device, "sda");
}

TEST_F(MadeUpSys, AVirtualDiskIsSaidToBeOne) {
  EXPECT_NE(On("ext4", 253, 0).why.find("virtual disks"), std::string::npos);
}

TEST_F(MadeUpSys, WhatHasNoDeviceIsToldByItsType) {
  EXPECT_EQ(On("tmpfs", 0, 30).kind, StorageKind::kMemory);
  for (const char* type : {"nfs4", "lustre", "fuse.sshfs", "cifs", "9p", "ceph", "beegfs"})
    EXPECT_EQ(On(type, 0, 30).kind, StorageKind::kNetwork) << type;
  for (const char* type : {"overlay", "zfs"})
    EXPECT_EQ(On(type, 0, 30).kind, StorageKind::kUnknown) << type;
}

TEST(Mounts, AreFoundByTheirNumber) {
  const std::string text =
      "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
      "36 27 8:1 / /data rw,noatime shared:1 master:2 - ext4 /dev/sda1 rw\n"
      "37 27 broken\n38 27 x:y / / rw - ext4 /dev/sdb rw\n39 27 8:2 / / rw - ext4\n";
  const auto mount = FindMount(text, 36);
  ASSERT_TRUE(mount.has_value());
  EXPECT_EQ(mount->type, "ext4");
  EXPECT_EQ(mount->source, "/dev/sda1");
  EXPECT_EQ(mount->major, 8u);
  EXPECT_EQ(mount->minor, 1u);
  for (uint64_t number : {2, 37, 38, 39, 99}) EXPECT_FALSE(FindMount(text, number)) << number;
}

TEST(Mounts, SayTheSameOfAFolderThatIsThere) {
  const TempFolder folder;
  const auto root = (*Roots::Create({{"r", folder.path()}}))->Find("r");
  ASSERT_TRUE(root.ok());
  EXPECT_FALSE((*root)->storage().why.empty());
}

TEST(Kinds, HaveNamesThatLeadBack) {
  for (const std::string& name : StorageKindChoices()) {
    const auto kind = StorageKindOf(name);
    EXPECT_EQ(kind.has_value(), name != "auto");
    if (kind) {
      EXPECT_EQ(StorageKindName(*kind), name);
    }
  }
}

TEST(Costs, AreTheSumOfTheirTerms) {
  const CostModel disk = CostsOf(StorageKind::kRotational);
  EXPECT_DOUBLE_EQ(disk.Seconds(10, 150e6, 10), 10 * 8e-3 + 1);
  const CostModel network = CostsOf(StorageKind::kNetwork);
  EXPECT_DOUBLE_EQ(network.Seconds(10, 1e7, 10), 10 * 1e-3 + 1e-2) << "one stripe each";
  EXPECT_DOUBLE_EQ(network.Seconds(1, 10 << 20, 1), 10 * 1e-3 + (10 << 20) / 1e9) << "ten stripes";
  EXPECT_EQ(disk.Seconds(0, 0, 0), 0);
}

}  // namespace
}  // namespace feedwater::server

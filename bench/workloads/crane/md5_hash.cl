// A search among keys of eight letters for the one with a given MD5 digest. Each work-item tries KEYS keys.
#define CHOOSE(x, y, z) bitselect(z, y, x)
#define CHOOSE_OTHERWISE(x, y, z) bitselect(y, x, z)
#define PARITY(x, y, z) (x ^ y ^ z)
#define MIX(x, y, z) (y ^ (x | ~z))
#define STEP(function, a, b, c, d, word, constant, shift) \
  a = b + rotate(a + function(b, c, d) + word + constant, (uint)shift);

// Of the two words that hold a key. The rest of the block is the same for all: a bit that ends the key, and its length
// of 64 bits.
uint4 digest_of(uint first, uint second) {
  uint a = 0x67452301u;
  uint b = 0xefcdab89u;
  uint c = 0x98badcfeu;
  uint d = 0x10325476u;
  STEP(CHOOSE, a, b, c, d, first, 0xd76aa478u, 7)
  STEP(CHOOSE, d, a, b, c, second, 0xe8c7b756u, 12)
  STEP(CHOOSE, c, d, a, b, 0x80u, 0x242070dbu, 17)
  STEP(CHOOSE, b, c, d, a, 0u, 0xc1bdceeeu, 22)
  STEP(CHOOSE, a, b, c, d, 0u, 0xf57c0fafu, 7)
  STEP(CHOOSE, d, a, b, c, 0u, 0x4787c62au, 12)
  STEP(CHOOSE, c, d, a, b, 0u, 0xa8304613u, 17)
  STEP(CHOOSE, b, c, d, a, 0u, 0xfd469501u, 22)
  STEP(CHOOSE, a, b, c, d, 0u, 0x698098d8u, 7)
  STEP(CHOOSE, d, a, b, c, 0u, 0x8b44f7afu, 12)
  STEP(CHOOSE, c, d, a, b, 0u, 0xffff5bb1u, 17)
  STEP(CHOOSE, b, c, d, a, 0u, 0x895cd7beu, 22)
  STEP(CHOOSE, a, b, c, d, 0u, 0x6b901122u, 7)
  STEP(CHOOSE, d, a, b, c, 0u, 0xfd987193u, 12)
  STEP(CHOOSE, c, d, a, b, 64u, 0xa679438eu, 17)
  STEP(CHOOSE, b, c, d, a, 0u, 0x49b40821u, 22)
  STEP(CHOOSE_OTHERWISE, a, b, c, d, second, 0xf61e2562u, 5)
  STEP(CHOOSE_OTHERWISE, d, a, b, c, 0u, 0xc040b340u, 9)
  STEP(CHOOSE_OTHERWISE, c, d, a, b, 0u, 0x265e5a51u, 14)
  STEP(CHOOSE_OTHERWISE, b, c, d, a, first, 0xe9b6c7aau, 20)
  STEP(CHOOSE_OTHERWISE, a, b, c, d, 0u, 0xd62f105du, 5)
  STEP(CHOOSE_OTHERWISE, d, a, b, c, 0u, 0x02441453u, 9)
  STEP(CHOOSE_OTHERWISE, c, d, a, b, 0u, 0xd8a1e681u, 14)
  STEP(CHOOSE_OTHERWISE, b, c, d, a, 0u, 0xe7d3fbc8u, 20)
  STEP(CHOOSE_OTHERWISE, a, b, c, d, 0u, 0x21e1cde6u, 5)
  STEP(CHOOSE_OTHERWISE, d, a, b, c, 64u, 0xc33707d6u, 9)
  STEP(CHOOSE_OTHERWISE, c, d, a, b, 0u, 0xf4d50d87u, 14)
  STEP(CHOOSE_OTHERWISE, b, c, d, a, 0u, 0x455a14edu, 20)
  STEP(CHOOSE_OTHERWISE, a, b, c, d, 0u, 0xa9e3e905u, 5)
  STEP(CHOOSE_OTHERWISE, d, a, b, c, 0x80u, 0xfcefa3f8u, 9)
  STEP(CHOOSE_OTHERWISE, c, d, a, b, 0u, 0x676f02d9u, 14)
  STEP(CHOOSE_OTHERWISE, b, c, d, a, 0u, 0x8d2a4c8au, 20)
  STEP(PARITY, a, b, c, d, 0u, 0xfffa3942u, 4)
  STEP(PARITY, d, a, b, c, 0u, 0x8771f681u, 11)
  STEP(PARITY, c, d, a, b, 0u, 0x6d9d6122u, 16)
  STEP(PARITY, b, c, d, a, 64u, 0xfde5380cu, 23)
  STEP(PARITY, a, b, c, d, second, 0xa4beea44u, 4)
  STEP(PARITY, d, a, b, c, 0u, 0x4bdecfa9u, 11)
  STEP(PARITY, c, d, a, b, 0u, 0xf6bb4b60u, 16)
  STEP(PARITY, b, c, d, a, 0u, 0xbebfbc70u, 23)
  STEP(PARITY, a, b, c, d, 0u, 0x289b7ec6u, 4)
  STEP(PARITY, d, a, b, c, first, 0xeaa127fau, 11)
  STEP(PARITY, c, d, a, b, 0u, 0xd4ef3085u, 16)
  STEP(PARITY, b, c, d, a, 0u, 0x04881d05u, 23)
  STEP(PARITY, a, b, c, d, 0u, 0xd9d4d039u, 4)
  STEP(PARITY, d, a, b, c, 0u, 0xe6db99e5u, 11)
  STEP(PARITY, c, d, a, b, 0u, 0x1fa27cf8u, 16)
  STEP(PARITY, b, c, d, a, 0x80u, 0xc4ac5665u, 23)
  STEP(MIX, a, b, c, d, first, 0xf4292244u, 6)
  STEP(MIX, d, a, b, c, 0u, 0x432aff97u, 10)
  STEP(MIX, c, d, a, b, 64u, 0xab9423a7u, 15)
  STEP(MIX, b, c, d, a, 0u, 0xfc93a039u, 21)
  STEP(MIX, a, b, c, d, 0u, 0x655b59c3u, 6)
  STEP(MIX, d, a, b, c, 0u, 0x8f0ccc92u, 10)
  STEP(MIX, c, d, a, b, 0u, 0xffeff47du, 15)
  STEP(MIX, b, c, d, a, second, 0x85845dd1u, 21)
  STEP(MIX, a, b, c, d, 0u, 0x6fa87e4fu, 6)
  STEP(MIX, d, a, b, c, 0u, 0xfe2ce6e0u, 10)
  STEP(MIX, c, d, a, b, 0u, 0xa3014314u, 15)
  STEP(MIX, b, c, d, a, 0u, 0x4e0811a1u, 21)
  STEP(MIX, a, b, c, d, 0u, 0xf7537e82u, 6)
  STEP(MIX, d, a, b, c, 0u, 0xbd3af235u, 10)
  STEP(MIX, c, d, a, b, 0x80u, 0x2ad7d2bbu, 15)
  STEP(MIX, b, c, d, a, 0u, 0xeb86d391u, 21)
  return (uint4)(a + 0x67452301u, b + 0xefcdab89u, c + 0x98badcfeu, d + 0x10325476u);
}

// The lowest digit of a number in base 26 is the first letter.
uint next_letters(uint* number) {
  uint word = 0;
#pragma unroll
  for (uint shift = 0; shift < 32; shift += 8) {
    word |= ('a' + *number % 26) << shift;
    *number /= 26;
  }
  return word;
}

// `folds` gets a word from the digests of each work-item's keys, so that all of the work can be checked and not only
// the one key.
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void search(uint4 wanted, global uint* found, global uint* folds) {
  uint fold = 0;
  for (uint i = 0; i < KEYS; ++i) {
    const uint key = i * get_global_size(0) + get_global_id(0);
    uint number = key;
    const uint first = next_letters(&number);
    const uint second = next_letters(&number);
    const uint4 digest = digest_of(first, second);
    fold += digest.x ^ digest.y ^ digest.z ^ digest.w;
    if (all(digest == wanted)) atomic_min(found, key);
  }
  folds[get_global_id(0)] = fold;
}

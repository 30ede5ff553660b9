/* A libjbig that decodes nothing, for the wheel. Debian's libtiff needs one to start;
   server/codec/whole/tiff.cc takes no TIFF that is compressed with JBIG, and jbigkit's own licence
   (GPL-2+) would hold for the whole wheel. libtiff reports what these return as an error. */
#include <stddef.h>

enum { kInvalid = 0x70 }; /* JBG_EINVAL of jbigkit 2.1 */

void jbg_dec_init(void* state) { (void)state; }
int jbg_dec_in(void* state, unsigned char* data, size_t bytes, size_t* used) {
  (void)state, (void)data, (void)bytes;
  if (used != NULL) *used = 0;
  return kInvalid;
}
long jbg_dec_getsize(const void* state) { return (void)state, 0; }
unsigned char* jbg_dec_getimage(const void* state, int plane) {
  return (void)state, (void)plane, NULL;
}
void jbg_dec_free(void* state) { (void)state; }
int jbg_newlen(unsigned char* data, size_t bytes) { return (void)data, (void)bytes, kInvalid; }
const char* jbg_strerror(int code) { return (void)code, "JBIG is left out of this build"; }
void jbg_enc_init(void* state) { (void)state; }
void jbg_enc_out(void* state) { (void)state; }
void jbg_enc_free(void* state) { (void)state; }

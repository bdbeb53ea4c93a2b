/* Takes the place of libjbig in the wheel. TIFF files compressed with JBIG (fax archives) are then
 * refused as files that cannot be decoded; the library itself is under the GPL. The functions are those
 * that libtiff 4 calls, as its tif_jbig.c declares their results: an int other than 0 is an error. */
int jbg_dec_in(void) { return 4; } /* JBG_EIMPL: not implemented */
void jbg_dec_init(void) {}
void jbg_dec_free(void) {}
unsigned long jbg_dec_getsize(void) { return 0; }
unsigned char* jbg_dec_getimage(void) { return 0; }
const char* jbg_strerror(void) { return "JBIG is not supported"; }
int jbg_newlen(void) { return 4; }
void jbg_enc_init(void) {}
void jbg_enc_out(void) {}
void jbg_enc_free(void) {}

/* The trampolines for AArch64; see trampolines.h and trampolines_x86_64.S. The table entry is loaded with acquire, which pairs
   with the resolver's release store (x86-64 orders loads by itself). */
#include "mpi/function_table.h"

	.text
	.macro ENTRY symbol number
	.globl \symbol
	.type \symbol,%function
	.p2align 4
\symbol:
	.cfi_startproc
	hint #34				/* bti c */
	adrp x16,headroom_mpi_table+8*(\number)
	add x16,x16,:lo12:(headroom_mpi_table+8*(\number))
	ldar x16,[x16]
	br x16
	.cfi_endproc
	.size \symbol,.-\symbol
first_\symbol:
	.cfi_startproc
	hint #34
	mov w17,#(\number)
	b resolve_and_jump
	.cfi_endproc
	.pushsection .data.rel.local,"aw",%progbits
	.quad first_\symbol
	.popsection
	.endm

	.pushsection .data.rel.local,"aw",%progbits
	.p2align 6
	.globl headroom_mpi_table
	.hidden headroom_mpi_table
	.type headroom_mpi_table,%object
headroom_mpi_table:
	.popsection

#define X(index, name) ENTRY MPI_##name, 2*index; ENTRY PMPI_##name, 2*index+1;
HEADROOM_FUNCTIONS(X)

	.pushsection .data.rel.local,"aw",%progbits
	.size headroom_mpi_table,.-headroom_mpi_table
	.popsection

	.type resolve_and_jump,%function
	.p2align 4
resolve_and_jump:
	.cfi_startproc
	hint #34
	stp x29,x30,[sp,#-224]!
	.cfi_def_cfa_offset 224
	.cfi_offset 29,-224
	.cfi_offset 30,-216
	mov x29,sp
	stp x0,x1,[sp,#16]
	stp x2,x3,[sp,#32]
	stp x4,x5,[sp,#48]
	stp x6,x7,[sp,#64]
	str x8,[sp,#80]
	stp q0,q1,[sp,#96]
	stp q2,q3,[sp,#128]
	stp q4,q5,[sp,#160]
	stp q6,q7,[sp,#192]
	mov w0,w17
	mov x1,x30
	bl headroom_mpi_resolve
	mov x16,x0
	ldp x0,x1,[sp,#16]
	ldp x2,x3,[sp,#32]
	ldp x4,x5,[sp,#48]
	ldp x6,x7,[sp,#64]
	ldr x8,[sp,#80]
	ldp q0,q1,[sp,#96]
	ldp q2,q3,[sp,#128]
	ldp q4,q5,[sp,#160]
	ldp q6,q7,[sp,#192]
	ldp x29,x30,[sp],#224
	.cfi_restore 29
	.cfi_restore 30
	.cfi_def_cfa_offset 0
	br x16
	.cfi_endproc
	.size resolve_and_jump,.-resolve_and_jump

	.section .note.GNU-stack,"",%progbits
	.section .note.gnu.property,"a"		/* branch target identification, pointer authentication */
	.p2align 3
	.long 4,16,5
	.asciz "GNU"
	.long 0xc0000000,4,3,0
